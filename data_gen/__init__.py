"""From a nuScenes folder to questions and reasoning traces."""

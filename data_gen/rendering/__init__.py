"""The rendered world: bodies, traffic, pictures, lidar and the tables of a nuScenes folder, all from one seed."""

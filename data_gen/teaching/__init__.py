"""Reasoning traces by teachers behind chat servers: reason, rules, write, verify; each stage leaves its own file."""

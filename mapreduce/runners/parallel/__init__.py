"""``-r parallel``: map and reduce tasks in processes of this machine."""

"""The inventory: read by Ansible's own loader, checked, and turned into the declared cluster."""

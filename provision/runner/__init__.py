"""Running playbooks: the process, its surroundings, the record it leaves beside the inventory."""

"""What people see while evaluations run."""

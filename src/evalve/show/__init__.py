"""What people see: progress, tables, comparisons, exports."""

"""Who may send when: limits in buckets, booked at the start instant."""

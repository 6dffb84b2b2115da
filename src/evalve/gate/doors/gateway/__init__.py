"""The gateway: a reverse proxy on the loopback interface, through which foreign programs call the gate."""

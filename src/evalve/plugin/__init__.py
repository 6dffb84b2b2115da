"""The pytest plugin (`hooks` is where pytest comes in), and the runs of pytest that `evalve` starts."""

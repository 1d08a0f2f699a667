/* The runner: pid 1 behind the wall (or, for provider direct, a plain process). It locks itself
 * down by the first frame (M_LOCKDOWN), says M_READY, and then does what it is told: starts
 * commands, runs file tools and probes. It decides nothing. It ends when the control socket closes;
 * inside, the kernel then ends all that lives behind the wall. */
#pragma once

/* Runs until the end; the exit code is one of enum child_exit. */
int runner_main(int control);

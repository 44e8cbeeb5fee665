// Package pressure follows a memory limit that changes while a process runs.
//
// A [Reading] is what the system says at one moment. A [Controller] turns readings into a target: how
// many bytes the process should hold. [Watch] reads at intervals and hands each new target on.
//
// The controller follows a lower limit at once and a higher one after it has held for a while, so that a
// limit that swings does not move weights to and fro. It does not know where limits come from, nor what
// is freed.
package pressure

// Package driver binds NVIDIA's driver while the program runs, with build tag cuda, and adds to
// gorgonia.org/cu what a pass does many times: launches, copies and waits.
//
// The driver is opened when the program starts, if it is there, so one binary runs with and without a
// GPU. [Reason] says why there is none. What happens once (devices, contexts, modules, memory) goes
// through gorgonia.org/cu, on a thread of its own while it lasts. A [Queue] sets its context with each
// call, so it may be used on any thread, and allocates nothing.
//
// It does not know tensors or operations.
package driver

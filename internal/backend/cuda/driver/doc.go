// Package driver binds NVIDIA's driver at run time. Without the build tag cuda it is empty. It adds
// to gorgonia.org/cu the calls that a pass makes often: launches, copies and waits.
//
// The driver is opened when the program starts, if it is installed, so one binary runs with and
// without a GPU. [Reason] explains why there is none. Rare calls (devices, contexts, modules,
// memory) go through gorgonia.org/cu on a locked thread. A [Queue] sets its context with each call,
// so it may be used on any thread. It allocates nothing.
//
// The package knows neither tensors nor operations.
package driver

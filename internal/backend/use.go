package backend

// Metered is implemented by a Backend with memory of its own that counts what it holds and copies.
type Metered interface {
	Backend
	// Use may be called by any goroutine, while the Backend computes and after Close.
	Use() Use
}

// Use is what a device holds now, and what it has copied since it was opened.
type Use struct {
	Bytes       int64   // of the device's memory
	Own         int64   // of these, operands of kernels and the scratch of operations
	ToDevice    int64   // bytes copied from the host, operands of kernels among them
	ToHost      int64   // bytes copied to the host
	CopySeconds float64 // in Copy, waits for the operations before it included
}

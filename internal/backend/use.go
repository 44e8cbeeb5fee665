package backend

// Metered is implemented by a Backend with memory of its own that counts the bytes that it holds
// and copies.
type Metered interface {
	Backend
	// Use is safe for concurrent use, while the Backend computes and after Close.
	Use() Use
}

// Use describes what a device holds now, and what it has copied since it was opened.
type Use struct {
	Bytes       int64   // of the device's memory
	Own         int64   // the part of Bytes for operands of kernels and scratch memory of operations
	ToDevice    int64   // bytes copied from the host, including operands of kernels
	ToHost      int64   // bytes copied to the host
	CopySeconds float64 // time in Copy, including waits for earlier operations
}

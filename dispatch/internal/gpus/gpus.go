// Package gpus is what this build can do with the GPUs of a machine.
//
// A [GPU] describes one. A [Tier] lists GPUs, opens them, and says which units of a model they have
// kernels for. Tests replace it by simulated GPUs; see package testhooks. A [Conversion] tells a Tier
// how weights are stored once they are loaded.
//
// The package does not know plans, nor which weights are placed where.
package gpus

import "github.com/heftai/heft/devicemap"

// A GPU describes a GPU of this machine. dispatch.GPU explains its fields.
type GPU struct {
	Number         int
	Name           string
	MemoryBytes    int64
	AvailableBytes int64
	Capability     string
	Reason         string
}

// List returns the GPUs of this machine. If there are none, reason says why, as text for users.
// The first call starts the driver, which takes some tenths of a second.
func List() (gpus []GPU, reason string) { return list() }

// Built reports whether this build can use GPUs, which requires the build tag cuda.
const Built = built

// Is reports whether a device is a GPU.
func Is(d devicemap.Device) bool {
	_, gpu := d.GPU()
	return gpu
}

// Kernels selects the kernels that a GPU computes with.
type Kernels uint8

// The kinds of kernels.
const (
	KernelsAuto  Kernels = iota // KernelsFast on GPU architectures on which they passed their tests
	KernelsExact                // same order of summation as the CPU's kernels, and the same bits
	KernelsFast                 // kernels for tensor cores, which round activations
)

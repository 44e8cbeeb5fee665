package devicemap

import (
	"strconv"
)

// Device is a place for weights, written as Accelerate writes it: a GPU's number
// ("0"), "cpu", "disk" or "mps".
type Device string

// The devices that are not numbered.
const (
	CPU  Device = "cpu"
	Disk Device = "disk"
	MPS  Device = "mps"
)

// GPU is the device of GPU number i.
func GPU(i int) Device { return Device(strconv.Itoa(i)) }

// GPU is the GPU's number; ok is false for the other devices.
func (d Device) GPU() (i int, ok bool) {
	i, err := strconv.Atoi(string(d))
	return i, err == nil
}

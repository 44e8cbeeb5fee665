//go:build cuda

package cuda

import (
	"fmt"
	"runtime"

	"gorgonia.org/cu"

	"github.com/heftai/heft/internal/backend/cuda/driver"
)

// The least compute capability that the kernels run on.
const leastMajor = 8

// A Device is a GPU that the driver shows.
type Device struct {
	Number       int
	Name         string
	Memory, Free int64  // bytes; Free is 0 where the device is not used
	Capability   string // such as "8.0"
	Reason       string // why it is not used, or ""
}

// List returns the GPUs of this machine, which CUDA_VISIBLE_DEVICES restricts. reason says why there are
// none, for the user.
func List() (devices []Device, reason string) {
	if why := driver.Reason(); why != "" {
		return nil, why
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, err.Error()
	}
	for i := range n {
		devices = append(devices, describe(i))
	}
	if n == 0 {
		reason = fmt.Sprintf("driver %s found no device", DriverVersion())
	}
	return devices, reason
}

// DriverVersion is the newest CUDA version that the driver supports.
func DriverVersion() string {
	v := cu.Version()
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}

func describe(i int) Device {
	d := Device{Number: i}
	device, err := cu.GetDevice(i)
	if err != nil {
		d.Reason = err.Error()
		return d
	}
	d.Name, _ = device.Name()
	d.Memory, _ = device.TotalMem()
	major, minor, err := device.ComputeCapability()
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	switch {
	case err != nil:
		d.Reason = err.Error()
	case major < leastMajor:
		d.Reason = fmt.Sprintf("compute capability %s, kernels need %d.0", d.Capability, leastMajor)
	default:
		if d.Free, err = freeMemory(device); err != nil {
			d.Reason = err.Error()
		}
	}
	return d
}

// Proven reports whether the kernels of Options.Fast passed their tests on a GPU of device i's architecture: on an
// H100 so far, of capability 9.0. Other architectures run the same sources, assembled for capability 8.0, without tests
// on one of them.
func Proven(i int) bool {
	devices, _ := List()
	return i >= 0 && i < len(devices) && devices[i].Capability == "9.0"
}

// freeMemory makes the device's context, which stays.
func freeMemory(device cu.Device) (int64, error) {
	runtime.LockOSThread() // a context belongs to a thread
	defer runtime.UnlockOSThread()
	context, err := device.RetainPrimaryCtx()
	if err != nil {
		return 0, err
	}
	if err := cu.SetCurrentContext(context); err != nil {
		return 0, err
	}
	free, _, err := cu.MemInfo()
	return free, err
}

//go:build cuda

package cuda

import (
	"fmt"
	"runtime"

	"gorgonia.org/cu"

	"github.com/heftai/heft/internal/backend/cuda/driver"
)

// leastMajor is the minimum major compute capability of the kernels.
const leastMajor = 8

// A Device is a GPU that the driver reports.
type Device struct {
	Number       int
	Name         string
	Memory, Free int64  // bytes; Free is 0 if the device is not used
	Capability   string // such as "8.0"
	Reason       string // why it is not used, or ""
}

// List returns the GPUs of this machine, restricted by CUDA_VISIBLE_DEVICES. If there are none,
// reason explains why, for the user.
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

// DriverVersion returns the newest CUDA version that the driver supports.
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

// Proven reports whether the kernels of Options.Fast have passed their tests on a GPU of device i's
// architecture. So far that is compute capability 9.0 (H100). Other architectures run the same
// sources compiled for 8.0, without tests on such a GPU.
func Proven(i int) bool {
	devices, _ := List()
	return i >= 0 && i < len(devices) && devices[i].Capability == "9.0"
}

// freeMemory returns the device's free memory in bytes. It creates the device's context and keeps
// it.
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

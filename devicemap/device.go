package devicemap

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Device is a place for weights, with Accelerate's names: a GPU's number ("0"), "cpu", "disk" or
// "mps".
type Device string

// The devices that are not numbered.
const (
	CPU  Device = "cpu"
	Disk Device = "disk"
	MPS  Device = "mps"
)

// GPU returns the device of GPU number i.
func GPU(i int) Device { return Device(strconv.Itoa(i)) }

// GPU returns the GPU's number; ok is false for the other devices.
func (d Device) GPU() (i int, ok bool) {
	i, err := strconv.Atoi(string(d))
	return i, err == nil
}

// ParseDevice parses a device as users write it: "cpu", "disk", "mps", a GPU's number, or torch's
// "cuda:N". It ignores case and surrounding white space.
func ParseDevice(text string) (Device, error) {
	d, err := parseDevice(text)
	if err != nil {
		return "", fmt.Errorf("devicemap: %w", err)
	}
	return d, nil
}

func parseDevice(text string) (Device, error) {
	name := strings.ToLower(strings.TrimSpace(text))
	switch d := Device(name); d {
	case CPU, Disk, MPS:
		return d, nil
	}
	i, ok := index(strings.TrimPrefix(name, "cuda:"))
	if !ok {
		return "", fmt.Errorf("got the device %q, want a GPU's number, cpu, disk or mps", text)
	}
	return GPU(i), nil
}

// MarshalJSON encodes a GPU as a number and other devices as strings, as Accelerate does.
func (d Device) MarshalJSON() ([]byte, error) {
	if i, ok := d.GPU(); ok {
		return strconv.AppendInt(nil, int64(i), 10), nil
	}
	return json.Marshal(string(d))
}

// UnmarshalJSON decodes a number or a string that ParseDevice accepts.
func (d *Device) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		text = string(b)
	}
	parsed, err := parseDevice(text)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// order returns the sort key of devices in Accelerate's order: GPUs by number, mps, cpu, disk.
// For other devices ok is false.
func (d Device) order() (rank, number int, ok bool) {
	if i, gpu := d.GPU(); gpu {
		return 0, i, true
	}
	switch d {
	case MPS:
		return 1, 0, true
	case CPU:
		return 2, 0, true
	case Disk:
		return 3, 0, true
	}
	return 4, 0, false
}

// compareDevices orders GPUs before mps, cpu and disk.
func compareDevices(a, b Device) int {
	ra, na, _ := a.order()
	rb, nb, _ := b.order()
	if ra != rb {
		return ra - rb
	}
	return na - nb
}

// accelerator reports whether d is a device other than the CPU and the disk. It returns false for
// the zero Device.
func (d Device) accelerator() bool { return d != "" && d != CPU && d != Disk }

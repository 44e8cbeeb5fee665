package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
)

// DeviceUse counts the use of a device by a model. The device is a GPU, or the host (cpu) of a
// model that also uses GPUs. For the host only BusySeconds is counted.
type DeviceUse struct {
	Device devicemap.Device `json:"device"`
	// Bytes is the GPU memory that the model uses: weights, KV cache, activations, and operands
	// of kernels.
	Bytes int64 `json:"bytes"`
	// WeightBytes is the size of the weights that stay on the GPU. It is part of Bytes, and 0 for
	// the host.
	WeightBytes int64 `json:"weight_bytes"`
	// OwnBytes is the part of Bytes that kernels use for operands and scratch memory. The plan
	// lists it as the GPU's runtime.
	OwnBytes int64 `json:"own_bytes"`
	// ToDeviceBytes and ToHostBytes count bytes copied from and to the host since the model was
	// opened. The copies took CopySeconds. CopySeconds does not include operands of kernels,
	// because nothing waits for them.
	ToDeviceBytes int64   `json:"to_device_bytes"`
	ToHostBytes   int64   `json:"to_host_bytes"`
	CopySeconds   float64 `json:"copy_seconds"`
	// StreamedBytes is the part of ToDeviceBytes that are host weights streamed for long prompts.
	StreamedBytes int64 `json:"streamed_bytes"`
	// BusySeconds is the time that modules ran on the device. On the host it includes waits for
	// weights.
	BusySeconds float64 `json:"busy_seconds"`
}

// A meter counts the use of a device by a model. It outlives the station, so that any goroutine
// may read it.
type meter struct {
	device   devicemap.Device
	busy     atomic.Int64    // nanoseconds
	streamed atomic.Int64    // bytes
	weights  atomic.Int64    // bytes that stay there
	counts   backend.Metered // nil for the host, and for devices that do not count
}

// newMeter returns the meter of a GPU. The first call for a model also creates the host's meter.
func (m *Model) newMeter(d devicemap.Device, b backend.Backend) *meter {
	if m.meters == nil {
		m.meters = []*meter{{device: devicemap.CPU}}
	}
	counts, _ := b.(backend.Metered)
	out := &meter{device: d, counts: counts}
	m.meters = append(m.meters, out)
	return out
}

// DeviceUse returns the use of the host and of each GPU, or nil if the model runs on the host
// only. It is safe for concurrent use, also after Close.
func (m *Model) DeviceUse() (out []DeviceUse) {
	for _, t := range m.meters {
		u := DeviceUse{Device: t.device, BusySeconds: time.Duration(t.busy.Load()).Seconds(), StreamedBytes: t.streamed.Load(), WeightBytes: t.weights.Load()}
		if t.counts != nil {
			c := t.counts.Use()
			u.Bytes, u.OwnBytes, u.ToDeviceBytes, u.ToHostBytes, u.CopySeconds = c.Bytes, c.Own, c.ToDevice, c.ToHost, c.CopySeconds
		}
		out = append(out, u)
	}
	return out
}

package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
)

// DeviceUse counts the use of a device by a model: a GPU, or the host (cpu) in addition to GPUs, for which only
// BusySeconds is counted.
type DeviceUse struct {
	Device devicemap.Device `json:"device"`
	// Bytes is the GPU memory that the model uses: weights, KV cache, activations and operands.
	Bytes int64 `json:"bytes"`
	// WeightBytes is the size of the weights that stay on the GPU, 0 for the host. Bytes includes it.
	WeightBytes int64 `json:"weight_bytes"`
	// OwnBytes is the part of Bytes that kernels use for operands and scratch. The plan has it as the GPU's runtime.
	OwnBytes int64 `json:"own_bytes"`
	// ToDeviceBytes and ToHostBytes were copied from and to the host since the model was opened, in
	// CopySeconds. CopySeconds does not include operands of kernels, because nothing waits for
	// them.
	ToDeviceBytes int64   `json:"to_device_bytes"`
	ToHostBytes   int64   `json:"to_host_bytes"`
	CopySeconds   float64 `json:"copy_seconds"`
	// StreamedBytes is the part of ToDeviceBytes that streams the host's weights for long prompts.
	StreamedBytes int64 `json:"streamed_bytes"`
	// BusySeconds is the time that modules ran there. On the host it includes waits for weights.
	BusySeconds float64 `json:"busy_seconds"`
}

// A meter counts what a model uses of a device. It outlives the station, so that any goroutine may read it.
type meter struct {
	device   devicemap.Device
	busy     atomic.Int64    // nanoseconds
	streamed atomic.Int64    // bytes
	weights  atomic.Int64    // bytes that stay there
	counts   backend.Metered // nil for the host, and for devices that do not count
}

// newMeter returns the meter of a GPU. The first of a model makes that of the host too.
func (m *Model) newMeter(d devicemap.Device, b backend.Backend) *meter {
	if m.meters == nil {
		m.meters = []*meter{{device: devicemap.CPU}}
	}
	counts, _ := b.(backend.Metered)
	out := &meter{device: d, counts: counts}
	m.meters = append(m.meters, out)
	return out
}

// DeviceUse returns the use of the host and of each GPU, or nil if the model runs on the host only.
// Any goroutine may call it, also after Close.
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

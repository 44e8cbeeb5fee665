package dispatch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// noRoom returns the error of a failed allocation on a GPU while the model is opened. what is the
// purpose of the memory. If the GPU has too little memory, the error says what to do; otherwise
// it says that the GPU failed. less is a way to need less memory, or "".
func (m *Model) noRoom(s *station, what, less string, err error) error {
	tier := m.settings.GPUs()
	if !tier.NoMemory(err) {
		_ = s.backend.Sync() // which finds out whether the GPU was lost
		return s.failed("", fmt.Errorf("memory for %s: %w", what, err))
	}
	var held int64
	if s.meter.counts != nil {
		held = s.meter.counts.Use().Bytes
	}
	return m.tooLittle(s.device, held, what, less, err)
}

// tooLittle returns the error of an allocation for which a GPU has too little memory. held are
// the bytes that the model has allocated there. less is a way to need less memory, or "".
func (m *Model) tooLittle(d devicemap.Device, held int64, what, less string, err error) error {
	var state []string
	if plan := m.plan.Device(d); plan.LimitBytes > 0 { // else the map is of a caller that planned nothing
		state = append(state, "the plan takes "+devicemap.FormatSize(plan.Used()))
	}
	if held > 0 {
		state = append(state, "the model has "+devicemap.FormatSize(held))
	}
	limit := "SIZE"
	gpus, _ := m.settings.GPUs().List()
	for _, g := range gpus {
		if devicemap.GPU(g.Number) == d {
			state = append(state, fmt.Sprintf("%s of %s are free now", devicemap.FormatSize(g.AvailableBytes), devicemap.FormatSize(g.MemoryBytes)))
			if limit = "0"; placement.GPULimit(held+g.AvailableBytes) > 0 {
				limit = fmt.Sprintf("%dMiB", placement.GPULimit(held+g.AvailableBytes)>>20)
			}
		}
	}
	out := fmt.Errorf("dispatch: GPU %s has too little memory for %s (%s): %w; lower its limit with --max-memory %s=%s", d, what, strings.Join(state, ", "), err, d, limit)
	if m.plan.Policy == devicemap.Manual {
		out = fmt.Errorf("%w, place fewer blocks on it", out)
	}
	if less != "" {
		out = fmt.Errorf("%w, or %s", out, less)
	}
	return out
}

// noteLoss records that s was lost, if err is of a pass that failed on it before the loss was
// known.
func (s *station) noteLoss(err error) {
	if err == nil {
		return
	}
	var failed *DeviceError // allocated
	if errors.As(err, &failed) && failed.Device == s.device && !failed.Lost && s.lost() {
		failed.Lost = true
		s.tellLoss(failed)
	}
}

// cacheMemory is memory of a station for the KV cache. It keeps the error of a failed allocation.
type cacheMemory struct {
	backend.Memory
	err error
}

func (c *cacheMemory) New(dtype meta.DType, dims ...int) (t tensor.Tensor, err error) {
	t, err = c.Memory.New(dtype, dims...)
	c.err = errors.Join(c.err, err)
	return t, err
}

// kvError returns the error of allocating the KV cache.
func (m *Model) kvError(err error) error {
	for _, s := range m.stations.list {
		if s.cache != nil && s.cache.err != nil {
			return m.noRoom(s, "the KV cache", "use a lower --max-model-len", err)
		}
	}
	return err
}

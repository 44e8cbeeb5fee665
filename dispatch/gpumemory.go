package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// noRoom returns the error of a failed allocation on a GPU while the model is opened. what is the
// purpose of the memory. If the GPU has too little memory, the error says what to do; otherwise
// it says that the GPU failed. less is a way to need less memory, or "".
func (m *Model) noRoom(s *station, what, less string, err error) error {
	tier := m.options.gpuTier()
	if !tier.noMemory(err) {
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
	gpus, _ := m.options.gpuTier().list()
	for _, g := range gpus {
		if devicemap.GPU(g.Number) == d {
			state = append(state, fmt.Sprintf("%s of %s are free now", devicemap.FormatSize(g.AvailableBytes), devicemap.FormatSize(g.MemoryBytes)))
			if limit = "0"; gpuLimit(held+g.AvailableBytes) > 0 {
				limit = fmt.Sprintf("%dMiB", gpuLimit(held+g.AvailableBytes)>>20)
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

// unusedGPUs returns a warning for each GPU that cannot be used, such as one whose memory other
// processes take.
func (p *placement) unusedGPUs() (list []string) {
	for _, g := range p.gpus {
		if g.Reason != "" {
			list = append(list, notUsed(&g))
		}
	}
	return list
}

func notUsed(g *GPU) string { return fmt.Sprintf("GPU %d is not used: %s", g.Number, g.Reason) }

// explainGPU adds the memory of the GPU to an error of a user's device map, if its limit was not
// set.
func (p *placement) explainGPU(err error, o *Options) error {
	var placing *devicemap.PlacementError
	if !errors.As(err, &placing) || slices.ContainsFunc(o.MaxMemory, func(m devicemap.DeviceMemory) bool { return m.Device == placing.Device }) {
		return err
	}
	for _, g := range p.gpus {
		switch {
		case devicemap.GPU(g.Number) != placing.Device:
		case g.Reason != "":
			return fmt.Errorf("%w; %s", err, notUsed(&g))
		default:
			return fmt.Errorf("%w; %s of GPU %d's %s are free now, of which plans leave 5 %% and %s to the driver: set a limit with --max-memory %d=SIZE, or place fewer blocks there", err,
				devicemap.FormatSize(g.AvailableBytes), g.Number, devicemap.FormatSize(g.MemoryBytes), devicemap.FormatSize(gpuReserve), g.Number)
		}
	}
	if _, gpu := placing.Device.GPU(); gpu && len(p.gpus) == 0 {
		if _, reason := GPUs(); reason != "" {
			return fmt.Errorf("%w; there is no GPU: %s", err, reason)
		}
	}
	return err
}

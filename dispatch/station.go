package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/deviceweights"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A station is a GPU on which units of a model run: its memory, kernels and activations. A unit
// runs whole at one station, or on the host. Hidden states are copied if the next unit is on
// another device.
type station struct {
	device   devicemap.Device
	backend  backend.Backend
	weights  *stationWeights
	run      *nn.Context
	onLost   func(*DeviceError) // see Options.DeviceLost; nil when it was called
	meter    *meter
	noMemory func(error) bool // of the tier
	cache    *cacheMemory     // nil if no part of the KV cache is here

	pages  tensor.Tensor   // keys, values and states of the layers that stream; zero if none does
	layers []kvcache.Layer // the cache's layers, but those that stream are in pages
	states []tensor.Tensor // likewise for states
	input  nn.Input        // the pass's input with these layers and adapters

	adapted []*nn.Adapter // of each row of the pass
}

// stations are the GPUs of a model. The zero value is for a model that runs only on the host.
type stations struct {
	list    []*station
	of      []*station                          // of each unit, nil for the host; nil if no unit is at a station
	experts map[*meta.Module]*dividedExperts    // by stack
	places  func(*meta.Module) *nn.ExpertPlaces // nil if none are divided
	convert deviceweights.Conversion
	streams promptStreams
	logits  []float32 // results, copied to the host
	normed  []float32
	sums    []float32
	hidden  []float32
}

// A DeviceError reports that a pass failed on a GPU. If Lost is set, the GPU cannot be used any
// more: all later passes fail too, until the process is restarted.
type DeviceError struct {
	Device devicemap.Device
	Path   string // of the module that ran; "" if weights or results were copied
	Lost   bool
	Err    error
}

// Error names the GPU and the module.
func (e *DeviceError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("dispatch: GPU %s: %v", e.Device, e.Err)
	}
	return fmt.Sprintf("dispatch: %s: GPU %s: %v", e.Path, e.Device, e.Err)
}

// Unwrap returns the device's error.
func (e *DeviceError) Unwrap() error { return e.Err }

// lossReporter is implemented by backends of devices that can fail permanently.
type lossReporter interface{ Lost() error }

func (s *station) failed(path string, err error) error {
	if s.noMemory(err) {
		err = fmt.Errorf("%w; leave more of the GPU free with a lower --max-memory %s=SIZE", err, s.device)
	}
	out := &DeviceError{Device: s.device, Path: path, Lost: s.lost(), Err: err}
	if out.Lost {
		s.tellLoss(out)
	}
	return out
}

// lost reports whether the GPU is known to be lost.
func (s *station) lost() bool {
	b, ok := s.backend.(lossReporter)
	return ok && b.Lost() != nil
}

func (s *station) tellLoss(err *DeviceError) {
	if s.onLost != nil {
		s.onLost(err)
		s.onLost = nil
	}
}

// takeStations opens the GPUs of the device map and allocates memory for their weights. It reads
// no weight.
func (m *Model) takeStations() error {
	tier, convert := m.settings.GPUs(), m.settings.Conversion(m.stations.convert.Params)
	m.stations.of = make([]*station, len(m.program.Units))
	for i, d := range placement.UnitDevices(m.skeleton.Root, m.program, m.devices) {
		if m.program.HostOnly() != "" || tier.Refuses(m.program.Units[i], convert) != "" {
			continue
		}
		if gpus.Is(d) {
			s, err := m.station(d, tier)
			if err != nil {
				return err
			}
			m.stations.of[i] = s
		}
		if err := m.divideExperts(i, tier); err != nil {
			return err
		}
		if err := m.addUnit(i); err != nil {
			return err
		}
	}
	if len(m.stations.list) == 0 {
		m.stations.of = nil
	}
	return m.planStreams()
}

// station returns the station of a device. The first call opens it.
func (m *Model) station(d devicemap.Device, tier gpus.Tier) (*station, error) {
	for _, s := range m.stations.list {
		if s.device == d {
			return s, nil
		}
	}
	number, _ := d.GPU()
	b, err := tier.Open(number, m.backend)
	if err != nil && tier.NoMemory(err) {
		return nil, m.tooLittle(d, 0, "its kernels", "", err)
	}
	if err != nil {
		return nil, fmt.Errorf("dispatch: the device map has GPU %s: %w", d, err)
	}
	if limited, ok := b.(interface{ LimitOwn(bytes int64) }); ok {
		limited.LimitOwn(m.settings.GPUOwnBytes(m.skeleton, m.program))
	}
	s := &station{device: d, backend: b, noMemory: tier.NoMemory, onLost: m.options.DeviceLost, meter: m.newMeter(d, b)}
	s.weights = &stationWeights{Weights: deviceweights.New(b, m.binding, m.stations.convert, func(b *meta.Buffer) tensor.Tensor { return m.weights.Buffer(b) })}
	m.stations.list = append(m.stations.list, s)
	return s, nil
}

// startStations allocates activations. Weights and KV cache must have their memory.
func (m *Model) startStations() (err error) {
	for _, s := range m.stations.list {
		s.meter.weights.Store(s.weights.Bytes())
		if s.run, err = m.program.NewContext(s.backend, s.weights, m.settings.Limits()); err != nil {
			return m.noRoom(s, "activations", "use a lower --max-num-batched-tokens", err)
		}
	}
	if err := m.startStreams(); err != nil {
		return err
	}
	m.startExperts()
	return nil
}

// hostMap returns the device map of the weights that units of the host read. The function reports
// whether only stations read a parameter.
func (m *Model) hostMap() (devicemap.Map, func(*meta.Param) bool) {
	if !slices.ContainsFunc(m.devices.Devices(), gpus.Is) {
		return m.devices, nil
	}
	var host devicemap.Map
	for _, e := range m.devices.Entries() {
		if gpus.Is(e.Device) {
			e.Device = devicemap.CPU
		}
		host.Set(e.Path, e.Device)
	}
	read := map[*meta.Param]bool{}
	for i, u := range m.program.Units {
		if m.stations.of == nil || m.stations.of[i] == nil {
			for _, p := range gpus.UnitParams(u) {
				read[p] = true
			}
		}
		for _, n := range u.Experts {
			if d := m.stations.experts[n.Module]; d != nil && d.host() {
				for _, p := range n.Module.Params {
					read[p.Resolve()] = true
				}
			}
		}
	}
	return host, func(p *meta.Param) bool { return !read[p] }
}

// placeKV assigns the keys, values and states of each layer to its unit's station.
func (m *Model) placeKV(config *kvcache.Config, host backend.Memory) {
	if m.stations.of == nil {
		return
	}
	layers, states := make([]backend.Memory, len(m.program.KV())), make([]backend.Memory, len(m.program.States()))
	for i, u := range m.program.Units {
		memory := host
		if s := m.stations.of[i]; s != nil {
			if s.cache == nil {
				s.cache = &cacheMemory{Memory: s.shared()}
			}
			memory = s.cache
		}
		for _, l := range u.Layers {
			layers[l] = memory
		}
		for _, l := range u.States {
			states[l] = memory
		}
	}
	config.LayerMemory = func(i int) backend.Memory { return layers[i] }
	config.StateMemory = func(i int) backend.Memory { return states[i] }
}

// runStations runs all units at their stations, and waits for the stations.
func (m *Model) runStations(ctx context.Context, in *nn.Input) error {
	err := m.startUnits(ctx, in)
	for _, s := range m.stations.list {
		began := time.Now()
		if waited := s.run.Wait(); waited != nil && err == nil {
			err = s.failed("", waited)
		}
		s.noteLoss(err)
		s.meter.busy.Add(int64(time.Since(began)))
	}
	return err
}

// startUnits runs the units. Stations may still compute when it returns.
func (m *Model) startUnits(ctx context.Context, in *nn.Input) error {
	for _, s := range m.stations.list {
		if err := s.run.Begin(m.inputOf(s, in)); err != nil {
			return s.failed("", err)
		}
		s.run.DivideExperts(m.stations.places)
	}
	m.run.DivideExperts(m.stations.places)
	before := m.run
	for i, u := range m.program.Units {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, run := m.stationOfUnit(i), m.run
		streamed := s != nil && s != m.stations.of[i]
		if s != nil {
			run = s.run
		}
		for _, other := range m.stations.list { // which may have experts
			if err := other.weights.Load(i); err != nil {
				return other.failed(u.Path, err)
			}
		}
		if i > 0 && run != before {
			if err := run.Resume(before); err != nil {
				return m.unitError(i, u.Path, err)
			}
		}
		meter, began := m.meters[0], time.Now()
		if s != nil {
			meter = s.meter
		}
		var err error
		if to := m.expertStream(i); streamed {
			err = m.runStreamed(i, u, s)
		} else if to != nil {
			err = m.runStreamedExperts(i, u, run, to)
		} else {
			err = m.runUnit(i, u, run)
		}
		meter.busy.Add(int64(time.Since(began)))
		if err != nil {
			return err
		}
		before = run
	}
	return nil
}

// unitError returns the error of unit i, or of copying hidden states to it.
func (m *Model) unitError(i int, path string, err error) error {
	if s := m.streamOf(i); s != nil && s.HostFailed() {
		return m.weightError(path, err)
	}
	if other := m.peerError(path, err); other != nil {
		return other
	}
	if m.stations.of != nil {
		for _, s := range []*station{m.stationOfUnit(i), m.stationOfUnit(max(i-1, 0))} {
			if s != nil {
				return s.failed(path, err)
			}
		}
	}
	return m.weightError(path, err)
}

// last returns the context of the last unit, which holds the results of a pass.
func (m *Model) last() *nn.Context {
	if of := m.stations.of; of != nil && of[len(of)-1] != nil {
		return of[len(of)-1].run
	}
	return m.run
}

// read returns the values of t, a result of the last unit. It copies those of a device to kept.
func (m *Model) read(t tensor.Tensor, kept *[]float32) ([]float32, error) {
	return m.readAt(m.last(), t, kept)
}

// readAt is read for a tensor of another context.
func (m *Model) readAt(run *nn.Context, t tensor.Tensor, kept *[]float32) ([]float32, error) {
	if s := m.stationOf(run); s != nil {
		return s.read(t, kept)
	}
	return t.F32(), nil
}

// stationOf returns the station of a context, or nil for the host's.
func (m *Model) stationOf(run *nn.Context) *station {
	for _, s := range m.stations.list {
		if s.run == run {
			return s
		}
	}
	return nil
}

// writeBack copies hidden states that a hook may have changed back to their device.
func (m *Model) writeBack(run *nn.Context) error {
	s, h := m.stationOf(run), run.Hidden()
	if s == nil || h.IsZero() || h.Data != nil {
		return nil
	}
	if err := s.backend.Copy(h, tensor.Floats(m.pass.hook.Hidden, h.Rows(), h.Cols())); err != nil {
		return s.failed(m.pass.hook.Path, err)
	}
	return nil
}

// read returns the values of t, a tensor of the station. It copies values in device memory to
// kept.
func (s *station) read(t tensor.Tensor, kept *[]float32) ([]float32, error) {
	n := t.Elements()
	if n == 0 || t.Data != nil {
		return t.F32(), nil
	}
	if cap(*kept) < n {
		*kept = make([]float32, n)
	}
	values := (*kept)[:n]
	if err := s.backend.Copy(tensor.Floats(values, t.Rows(), t.Cols()), t); err != nil {
		return nil, s.failed("", err)
	}
	return values, nil
}

// closeStations frees the memory of all GPUs.
func (m *Model) closeStations() {
	for _, s := range m.stations.list {
		if s.run != nil {
			s.run.Close()
		}
		s.weights.Close()
		if s.weights.stream != nil {
			s.weights.stream.Close()
		}
		_ = s.backend.Close() // a lost device has said so already
	}
	m.stations = stations{}
}

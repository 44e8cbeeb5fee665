package devicemap

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/meta"
)

// A PlacementError reports why a model cannot be placed as the user asked.
type PlacementError struct {
	Device Device
	Reason string
}

// Error names the device and the reason.
func (e *PlacementError) Error() string {
	return fmt.Sprintf("devicemap: device %s: %s", e.Device, e.Reason)
}

// Solve places a model within budgets. It is deterministic: the same model, budgets and policy
// give the same plan.
//
// Auto places the units of a model (blocks, and modules outside of blocks) by the share of a
// unit's bytes that a token reads. Weights that are read whole come first, in tree order. GPUs
// are filled one after another, then the CPU. Routed experts follow: all of them stay if they
// fit, otherwise all stream one by one and the remaining memory caches them; see
// [Plan.CacheExperts]. Tables of which a token reads a row come last.
//
// Weights that do not fit stream from the disk through the CPU, which reserves staging memory for
// two of the largest loads (and two experts). Solve picks the staging size that minimises disk
// reads per token. If a block does not fit as a whole, some of its matrices stay and the others
// stream.
//
// Pins stay where they are. Solve returns a *[PlacementError] if pins do not fit or name a device
// without a budget, an *[UnknownPathError] if the model lacks a path, and an *[UncoveredError] if
// a manual map leaves out tensors.
//
// The other policies run Accelerate's solver within what the budgets leave for weights. If the
// CPU's budget is below the minimum, Solve returns the plan with the minimum and sets
// [Plan.BelowLeast].
func Solve(model *meta.Model, budgets []Budget, policy Policy) (Plan, error) {
	l, err := NewLayout(model, policy)
	if err != nil {
		return Plan{}, err
	}
	return l.Solve(budgets, policy)
}

// sortBudgets sorts budgets in Accelerate's order of devices and adds the disk.
func sortBudgets(budgets []Budget) ([]Budget, error) {
	list := slices.Clone(budgets)
	slices.SortStableFunc(list, func(a, b Budget) int { return compareDevices(a.Device, b.Device) })
	for i, b := range list {
		if _, _, ok := b.Device.order(); !ok {
			return nil, fmt.Errorf("devicemap: budget for unknown device %q", b.Device)
		}
		if i > 0 && list[i-1].Device == b.Device {
			return nil, fmt.Errorf("devicemap: two budgets for device %s", b.Device)
		}
		if min(b.Limit, b.KV, b.Activations, b.Staging, b.Requests, b.Runtime) < 0 {
			return nil, fmt.Errorf("devicemap: the budget of device %s is negative", b.Device)
		}
	}
	if n := len(list); n == 0 || list[n-1].Device != Disk {
		list = append(list, Budget{Device: Disk})
	}
	list[len(list)-1].Limit = 0
	return list, nil
}

// ownSizing counts whole bytes of each tensor as stored in memory, in dtype if that is smaller.
func ownSizing(dtype string) (sizing, error) {
	most := math.Inf(1)
	if dtype != "" {
		var err error
		if most, err = DTypeByteSize(dtype); err != nil {
			return nil, err
		}
	}
	return func(_ string, d meta.DType, elements int64) float64 {
		bytes := float64(d.Bytes(elements))
		if shrinks(d) && most < float64(d.Bits())/8 {
			bytes = math.Ceil(float64(elements) * most)
		}
		return bytes
	}, nil
}

// solveAuto plans by Heft's own policy. It first tries a window that reads bands ahead, and if
// that does not fit, the minimum window.
func solveAuto(d *divider, budgets []Budget, p Policy) (Plan, error) {
	if err := placePins(d.units, budgets, p); err != nil {
		return Plan{}, err
	}
	for _, tight := range []bool{p.Tight, true} {
		f := newFiller(slices.Clone(d.units), budgets)
		f.hits, f.tight, f.apart = p.ExpertHits, tight, p.ExpertsApart
		f.rank()
		host := hostOf(budgets)
		f.fillGPUs(host)
		budgets, p, moved := moveKV(f.units, budgets, p)
		if host >= 0 {
			f.room[host] += moved
		}
		fits := host < 0 || f.fillHost(host)
		switch {
		case fits:
		case !tight:
			continue
		default:
			// A single sequence still runs if there is no room for all that were planned.
			f.room[host] += budgets[host].KV - budgets[host].leastKV(p.SequenceKV)
			f.fillHost(host)
		}
		f.restToDisk()
		least := leastMemory(f.units)
		d.units = insertCuts(splitUnits(f.units, f.streams), f.cuts)
		return checked(d, least, tight, budgets, p)
	}
	return Plan{}, nil
}

// checked returns the plan of placed units with the minimum memory for weights. It returns an
// error if the user's pins leave the host too little to stream the rest.
func checked(d *divider, least int64, tight bool, budgets []Budget, p Policy) (Plan, error) {
	plan := finish(d.units, least, tight, budgets, p)
	plan.Warnings = slices.Concat(d.warnings, plan.Warnings)
	host := hostOf(budgets)
	if host < 0 || plan.BelowLeast || p.Pins.Len() == 0 {
		return plan, nil
	}
	if h := plan.Devices[host]; h.WeightsBytes > 0 && h.Used() > h.LimitBytes {
		return Plan{}, &PlacementError{h.Device, fmt.Sprintf("modules placed there by hand take %s, and streaming the rest from the disk %s, which is %s more than its limit of %s allows",
			FormatSize(h.WeightsBytes), FormatSize(h.StagingBytes), FormatSize(h.Used()-h.LimitBytes), FormatSize(h.LimitBytes))}
	}
	return plan, nil
}

// placePins places pinned units and checks that they fit.
func placePins(units []unit, budgets []Budget, p Policy) error {
	pinned := map[Device]int64{}
	for i := range units {
		u := &units[i]
		if u.pin == "" {
			continue
		}
		if !slices.ContainsFunc(budgets, func(b Budget) bool { return b.Device == u.pin }) {
			return &PlacementError{u.pin, fmt.Sprintf("%s is placed there, but the devices are %s",
				describe(u.path), deviceNames(budgets))}
		}
		u.at = u.pin
		pinned[u.pin] += u.bytes
		if u.pin.accelerator() {
			pinned[u.pin] += u.kv
		}
	}
	for _, b := range budgets {
		room := max(0, b.room(b.leastKV(p.SequenceKV)))
		if need := pinned[b.Device]; b.Device != Disk && need > room && p.Pins.Len() > 0 {
			return &PlacementError{b.Device, fmt.Sprintf("modules placed there by hand take %s, and of its %s only %s are free for weights",
				FormatSize(need), FormatSize(b.Limit), FormatSize(room))}
		}
	}
	return nil
}

func deviceNames(budgets []Budget) string {
	var names []string
	for _, b := range budgets {
		names = append(names, string(b.Device))
	}
	return strings.Join(names, ", ")
}

// describe formats a path for a message.
func describe(path string) string {
	if path == "" {
		return "the model"
	}
	return path
}

// solveManual plans by a map that covers the model.
func solveManual(d *divider, budgets []Budget, p Policy) (Plan, error) {
	if err := placePins(d.units, budgets, p); err != nil {
		return Plan{}, err
	}
	for i := range d.units {
		if d.units[i].at == "" { // buffers that no checkpoint has
			d.units[i].at = budgets[0].Device
		}
	}
	least := leastMemory(d.units)
	budgets, p, _ = moveKV(d.units, budgets, p)
	plan := finish(d.units, least, false, budgets, p)
	host := hostOf(budgets)
	tight := host >= 0 && plan.Devices[host].Used() > budgets[host].Limit
	return checked(d, least, tight, budgets, p)
}

// solveAccelerate runs Accelerate's solver within what the budgets leave for weights.
func solveAccelerate(root *meta.Module, t *table, budgets []Budget, p Policy) (Plan, error) {
	if p.Pins.Len() > 0 {
		return Plan{}, fmt.Errorf("devicemap: policy %s takes no pins: use auto", p.Kind)
	}
	o := Options{NoSplitModuleClasses: p.NoSplit, DType: p.DType, OffloadBuffers: p.OffloadBuffers}
	o.MaxMemory = []DeviceMemory{}
	for _, b := range budgets {
		if b.Device != Disk {
			o.MaxMemory = append(o.MaxMemory, DeviceMemory{Device: b.Device, Bytes: float64(max(0, b.room(b.KV)))})
		}
	}
	sizes, err := accelerateSizing(p.DType, nil)
	if err != nil {
		return Plan{}, err
	}
	theirs, err := newLoadedTable(root, sizes, Policy{Loaded: p.Loaded})
	if err != nil {
		return Plan{}, err
	}
	memory := o.MaxMemory
	if p.Kind != Sequential {
		memory = balance(theirs, memory, o, p.Kind == BalancedLow0)
	}
	result, err := infer(theirs, memory, o)
	if err != nil {
		return Plan{}, err
	}
	if host := hostOf(budgets); host >= 0 && slices.Contains(result.Raw.Devices(), Disk) {
		// The solver reserves room for one layer on the CPU, but streaming takes two.
		memory[host].Bytes = max(0, memory[host].Bytes-newSolver(theirs, nil, o).largest)
		if result, err = infer(theirs, memory, o); err != nil {
			return Plan{}, err
		}
	}
	plan, err := solveManual(divide(t, p, result.Raw, false).bound(&p), budgets, p)
	plan.Warnings = append(result.Warnings, plan.Warnings...)
	return plan, err
}

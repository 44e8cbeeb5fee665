package devicemap

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/heftai/heft/meta"
)

// drawTree makes a tree with blocks, stacks of experts, tied parameters and equal modules.
func drawTree(t *rapid.T) *meta.Module {
	d := &treeDrawer{T: t}
	root := &meta.Module{Class: "Root"}
	d.tensors(root, 1)
	for i := range rapid.IntRange(1, 4).Draw(t, "top") {
		root.Children = append(root.Children, d.module("m"+strconv.Itoa(i), 0))
	}
	return root
}

type treeDrawer struct {
	*rapid.T
	params  []*meta.Param
	modules []*meta.Module
}

var drawnDTypes = []meta.DType{meta.Float32, meta.BFloat16, meta.Int8, meta.Bool, meta.Float8E4M3}

func (d *treeDrawer) tensors(m *meta.Module, most int) {
	for i := range rapid.IntRange(0, most).Draw(d.T, "params") {
		p := &meta.Param{Name: "w" + strconv.Itoa(i), DType: rapid.SampledFrom(drawnDTypes).Draw(d.T, "dtype"),
			Shape: []int{rapid.IntRange(0, 40).Draw(d.T, "rows"), rapid.IntRange(1, 40).Draw(d.T, "columns")}}
		if len(d.params) > 0 && rapid.IntRange(0, 5).Draw(d.T, "tie") == 0 {
			p.SameAs = rapid.SampledFrom(d.params).Draw(d.T, "to")
			p.Shape, p.DType = p.SameAs.Shape, p.SameAs.DType
		}
		d.params = append(d.params, p)
		m.Params = append(m.Params, p)
	}
	if rapid.IntRange(0, 3).Draw(d.T, "buffer") == 0 {
		m.Buffers = append(m.Buffers, &meta.Buffer{Name: "b", DType: meta.Float32,
			Shape: []int{rapid.IntRange(0, 20).Draw(d.T, "size")}, Persistent: rapid.Bool().Draw(d.T, "persistent")})
	}
}

func (d *treeDrawer) module(name string, depth int) *meta.Module {
	if len(d.modules) > 0 && rapid.IntRange(0, 12).Draw(d.T, "alias") == 0 {
		return &meta.Module{Name: name, SameAs: rapid.SampledFrom(d.modules).Draw(d.T, "same")}
	}
	m := &meta.Module{Name: name, Class: rapid.SampledFrom([]string{"Linear", "Embedding", "List", "Block"}).Draw(d.T, "class")}
	d.tensors(m, 2)
	if depth < 3 {
		for i := range rapid.IntRange(0, 3).Draw(d.T, "children") {
			m.Children = append(m.Children, d.module(strconv.Itoa(i), depth+1))
		}
	}
	if rapid.IntRange(0, 4).Draw(d.T, "experts") == 0 {
		count := rapid.IntRange(1, 6).Draw(d.T, "count")
		m.Kind, m.Spec = meta.KindMoE, &meta.MoESpec{Experts: "experts", Count: count, TopK: rapid.IntRange(1, count).Draw(d.T, "k")}
		m.Children = append(m.Children, &meta.Module{Name: "experts", Class: "Experts", Params: []*meta.Param{
			{Name: "up", Shape: []int{count, 8, rapid.IntRange(1, 30).Draw(d.T, "in")}, DType: meta.BFloat16},
			{Name: "down", Shape: []int{count, 5, 8}, DType: meta.BFloat16}}})
	}
	d.modules = append(d.modules, m)
	return m
}

// drawPins places some paths of the tree by hand.
func drawPins(t *rapid.T, table *table, devices []Device) Map {
	var pins Map
	for range rapid.IntRange(0, 3).Draw(t, "pins") {
		n := int32(rapid.IntRange(0, len(table.nodes)-1).Draw(t, "pin"))
		path := table.nodes[n].path
		if strings.Contains(path, "experts.") {
			continue // refused
		}
		if count := table.stack(n); count > 0 {
			path = fmt.Sprintf("%s[%d:%d]", path, rapid.IntRange(0, count-1).Draw(t, "from"), count)
		}
		pins.Set(path, rapid.SampledFrom(devices).Draw(t, "on"))
	}
	return pins
}

func TestSolveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := drawTree(t)
		tree, err := newTable(root, countNothing)
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.Int64Range(0, 12000)
		small := rapid.Int64Range(0, 800)
		var budgets []Budget
		var devices []Device
		for _, d := range []Device{GPU(0), GPU(1), CPU} {
			if d == CPU || rapid.Bool().Draw(t, "gpu") {
				budgets = append(budgets, Budget{Device: d, Limit: size.Draw(t, "limit"), KV: small.Draw(t, "kv"), Activations: small.Draw(t, "activations"), Staging: small.Draw(t, "staging"),
					Requests: small.Draw(t, "requests"), Runtime: small.Draw(t, "runtime")})
				devices = append(devices, d)
			}
		}
		p := Policy{Kind: rapid.SampledFrom([]PolicyKind{Auto, Auto, Auto, Balanced, BalancedLow0, Sequential}).Draw(t, "kind"),
			NoSplit: rapid.SampledFrom([][]string{{"Block"}, {}}).Draw(t, "no split"), SequenceKV: small.Draw(t, "sequence")}
		if p.Kind == Auto {
			p.Pins = drawPins(t, tree, append(devices, Disk))
			p.ExpertsApart = rapid.Bool().Draw(t, "experts apart")
			if p.Pins.Len() == 0 && rapid.Bool().Draw(t, "host only") {
				p.HostOnly = map[string]bool{"m0": true}
			}
		}
		model := &meta.Model{Root: root}
		plan, err := Solve(model, budgets, p)
		if err != nil {
			var refused *PlacementError
			if !errors.As(err, &refused) || p.Pins.Len() == 0 {
				t.Fatal(err)
			}
			return
		}
		checkPlan(t, root, budgets, p, plan)
		again, _ := Solve(model, budgets, p)
		a, _ := json.Marshal(plan)
		b, _ := json.Marshal(again)
		if string(a) != string(b) {
			t.Fatalf("two plans for one input:\n%s\n%s", a, b)
		}
	})
}

// checkPlan checks a plan against the tree alone.
func checkPlan(t interface{ Fatalf(string, ...any) }, root *meta.Module, budgets []Budget, p Policy, plan Plan) {
	weights := map[Device]int64{}
	for path, param := range root.AllParams() {
		d, ok := plan.Map.Device(path)
		if !ok {
			t.Fatalf("no device for %s in %v", path, plan.Map)
		}
		if pin, ok := p.Pins.Device(path); ok && pin != d || d.accelerator() && p.hostOnly(path) && param.SameAs == nil {
			t.Fatalf("%s is pinned to %q and planned on %s", path, pin, d)
		}
		if param.SameAs != nil {
			continue
		}
		experts, name := path[:max(0, strings.LastIndexByte(path, '.'))], param.Name
		if (name == "up" || name == "down") && strings.HasSuffix(experts, "experts") {
			for e := range param.Shape[0] {
				key := meta.Join(experts, strconv.Itoa(e))
				d, _ := plan.Map.Device(key)
				if pin, ok := p.Pins.Device(key); ok && pin != d {
					t.Fatalf("%s is pinned to %s and planned on %s in %v", key, pin, d, plan.Map)
				}
				weights[d] += param.Bytes() / int64(param.Shape[0])
			}
			continue
		}
		weights[d] += param.Bytes()
	}
	for path, m := range root.Walk() {
		for _, b := range m.Buffers {
			d, ok := plan.Map.Device(meta.Join(path, b.Name))
			if !ok {
				t.Fatalf("no device for buffer %s of %s in %v", b.Name, path, plan.Map)
			}
			weights[d] += b.Bytes()
		}
	}
	for _, d := range plan.Devices {
		if d.WeightsBytes != weights[d.Device] {
			t.Fatalf("%s holds %d bytes of weights, the plan says %d: %v", d.Device, weights[d.Device], d.WeightsBytes, plan.Map)
		}
		if d.Device == Disk {
			continue
		}
		// Accelerate counts tied parameters with the modules that hold them, twice or
		// not at all, and may then exceed a limit; the plan says so.
		over := d.Used() > d.LimitBytes
		if over && d.Device == CPU && !plan.BelowLeast && p.Kind == Auto {
			t.Fatalf("%s: over the limit: %+v, least %d, %v", d.Device, d, plan.Least, plan.Map)
		}
		if over && len(plan.Warnings) == 0 {
			t.Fatalf("%s: over the limit without a warning: %+v", d.Device, d)
		}
		i := slices.IndexFunc(budgets, func(b Budget) bool { return b.Device == d.Device })
		if kv := budgets[i].leastKV(p.SequenceKV); d.KVBytes < kv || d.KVBytes > budgets[i].KV {
			t.Fatalf("%s: room for kv is %d, not from %d to %d", d.Device, d.KVBytes, kv, budgets[i].KV)
		}
	}
}

// TestInferProperties: the solver ends, places every parameter and pulls no module apart
// that must stay whole, on trees that Accelerate itself fails on too.
func TestInferProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := drawTree(t)
		size := rapid.Float64Range(0, 12000)
		o := Options{NoSplitModuleClasses: []string{"Block"}, FallbackAllocation: rapid.Bool().Draw(t, "fallback"), MaxMemory: []DeviceMemory{}}
		for _, d := range []Device{GPU(0), GPU(1), MPS, CPU} {
			if rapid.Bool().Draw(t, "has "+string(d)) {
				o.MaxMemory = append(o.MaxMemory, DeviceMemory{Device: d, Bytes: size.Draw(t, "memory")})
			}
		}
		if rapid.Bool().Draw(t, "balanced") {
			var err error
			if o.MaxMemory, err = BalancedMemory(root, o, rapid.Bool().Draw(t, "low zero")); err != nil {
				t.Fatal(err)
			}
		}
		r, err := InferAutoDeviceMap(root, o)
		if err != nil {
			t.Fatal(err)
		}
		if missing := uncoveredParams(root, r.Raw); len(missing) > 0 {
			t.Fatalf("%v leaves out %v", r.Raw, missing)
		}
		for path, d := range r.Raw.All() {
			if got, ok := r.Map.Device(path); !ok || got != d {
				t.Fatalf("%s is on %s, and on %s once the map is clean: %v", path, d, got, r.Map)
			}
		}
	})
}

func TestCleanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Map
		for range rapid.IntRange(0, 12).Draw(t, "entries") {
			m.Set(rapid.StringMatching(`([a-c]|1)(\.([a-c]|1)){0,3}(\[0:2\])?`).Draw(t, "path"),
				rapid.SampledFrom([]Device{"0", "1", CPU}).Draw(t, "device"))
		}
		c := m.Clean()
		if c.Len() > m.Len() {
			t.Fatalf("%v is longer than %v", c, m)
		}
		probe := rapid.StringMatching(`([a-c]|1)(\.([a-c]|1)){0,3}`).Draw(t, "probe")
		if d, ok := m.Device(probe); ok {
			if got, ok := c.Device(probe); !ok || got != d {
				t.Fatalf("%s is on %s in %v, and on %s in %v", probe, d, m, got, c)
			}
		}
		for path, d := range m.All() {
			if got, ok := c.Device(path); (!ok || got != d) && !strings.Contains(path, "[") {
				t.Fatalf("%s is on %s in %v, and on %s in %v", path, d, m, got, c)
			}
		}
	})
}

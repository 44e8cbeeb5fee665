package devicemap

import (
	"testing"

	"github.com/heftai/heft/meta"
)

// mixture is a model of blocks with a matrix of 1,000 bytes and eight experts of 1,000 bytes each.
func mixture(blocks int) *meta.Model {
	root := &meta.Module{Class: "Root"}
	for i := range blocks {
		root.Children = append(root.Children, &meta.Module{Name: string(rune('a' + i)), Class: "Block", Children: []*meta.Module{
			{Name: "dense", Class: "Linear", Params: []*meta.Param{{Name: "weight", Shape: []int{20, 25}, DType: meta.BFloat16}}},
			{Name: "moe", Class: "MoE", Kind: meta.KindMoE, Spec: &meta.MoESpec{Experts: "experts", Count: 8, TopK: 2}, Children: []*meta.Module{
				{Name: "experts", Class: "Experts", Params: []*meta.Param{{Name: "up", Shape: []int{8, 20, 25}, DType: meta.BFloat16}}}}}}})
	}
	return &meta.Model{Root: root, NoSplitClasses: []string{"Block"}}
}

// TestAcceleratorsTakeSomeExpertsOfAStack: memory that no whole stack fits into has experts of one, of a block that is on the
// same accelerator. Whole stacks are on the accelerator of their block first.
func TestAcceleratorsTakeSomeExpertsOfAStack(t *testing.T) {
	budgets := []Budget{{Device: GPU(0), Limit: 2500}, {Device: GPU(1), Limit: 15400}, {Device: CPU, Limit: 100000}}
	for apart, want := range map[bool]string{
		true:  "a=0,a.moe.experts=cpu,b=0,b.moe.experts=cpu,c=1,d=1,d.moe.experts=cpu,d.moe.experts[0:5]=1",
		false: "a=0,a.moe.experts=1,b=0,b.moe.experts=cpu,c=1,c.moe.experts=cpu,d=1,d.moe.experts=cpu",
	} {
		plan, err := Solve(mixture(4), budgets, Policy{ExpertsApart: apart})
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Map.String(); got != want {
			t.Errorf("experts apart %v: %s, want %s", apart, got, want)
		}
	}
}

// TestUnitsThatNoAcceleratorRunsStream: they were pinned to the CPU, whatever its limit.
func TestUnitsThatNoAcceleratorRunsStream(t *testing.T) {
	model := mixture(4)
	plan, err := Solve(model, []Budget{{Device: GPU(0), Limit: 100000}, {Device: CPU, Limit: 12000}}, Policy{HostOnly: map[string]bool{"": true}})
	if err != nil {
		t.Fatal(err)
	}
	host := plan.Device(CPU)
	if host.WeightsBytes+plan.Device(Disk).WeightsBytes != 4*9000 || host.Used() > host.LimitBytes || len(plan.Warnings) > 0 {
		t.Errorf("%+v, warnings %q: %v", plan.Devices, plan.Warnings, plan.Map)
	}
}

package devicemap

import (
	"testing"

	"github.com/heftai/heft/meta"
)

// nested is a block of two matrices. One of them has a module of its own, and the block has a table
// of which single rows are read.
func nested() *meta.Module {
	tensor := func(rows int) []*meta.Param {
		return []*meta.Param{{Name: "w", Shape: []int{rows, 16}, DType: meta.BFloat16}}
	}
	inner := &meta.Module{Name: "inner", Class: "Linear", Params: tensor(4)}
	outer := &meta.Module{Name: "outer", Class: "List", Params: tensor(24), Children: []*meta.Module{inner}}
	flat := &meta.Module{Name: "flat", Class: "Linear", Params: tensor(12)}
	table := &meta.Module{Name: "table", Class: "Embedding", Kind: meta.KindEmbedding, Params: tensor(30)}
	return &meta.Module{Class: "Root", Children: []*meta.Module{
		{Name: "block", Class: "Block", Children: []*meta.Module{outer, flat, table}},
	}}
}

// TestAMatrixOnTheDiskTookInnerModulesAlong: a module within a matrix was counted on the CPU and sent
// to the disk, and tables were taken for what streams. Every limit is checked, byte by byte.
func TestAMatrixOnTheDiskTookInnerModulesAlong(t *testing.T) {
	root := nested()
	p := Policy{Kind: Auto, NoSplit: []string{"Block"}}
	parted := false
	for limit := range int64(5000) {
		budgets := []Budget{{Device: CPU, Limit: limit}}
		plan, err := Solve(&meta.Model{Root: root}, budgets, p)
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		checkPlan(t, root, budgets, p, plan)
		at, _ := plan.Map.Device("block.flat.w")
		other, _ := plan.Map.Device("block.outer.w")
		parted = parted || at != other
	}
	if !parted {
		t.Error("no limit parts the block")
	}
}

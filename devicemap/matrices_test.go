package devicemap

import (
	"strconv"
	"testing"

	"github.com/heftai/heft/meta"
)

// nested is some blocks of two matrices. One of them has a module of its own, and each block has a table
// of which single rows are read.
func nested(blocks int) *meta.Module {
	root := &meta.Module{Class: "Root"}
	for i := range blocks {
		root.Children = append(root.Children, nestedBlock("block"+strconv.Itoa(i)))
	}
	return root
}

func nestedBlock(name string) *meta.Module {
	tensor := func(rows int) []*meta.Param {
		return []*meta.Param{{Name: "w", Shape: []int{rows, 16}, DType: meta.BFloat16}}
	}
	inner := &meta.Module{Name: "inner", Class: "Linear", Params: tensor(4)}
	outer := &meta.Module{Name: "outer", Class: "List", Params: tensor(24), Children: []*meta.Module{inner}}
	flat := &meta.Module{Name: "flat", Class: "Linear", Params: tensor(12)}
	table := &meta.Module{Name: "table", Class: "Embedding", Kind: meta.KindEmbedding, Params: tensor(30)}
	return &meta.Module{Name: name, Class: "Block", Children: []*meta.Module{outer, flat, table}}
}

// TestAMatrixOnTheDiskMovedItsInnerModulesToo: a module within a matrix was counted on the CPU and sent
// to the disk, and tables were taken for what streams. Every eighth limit is checked.
func TestAMatrixOnTheDiskMovedItsInnerModulesToo(t *testing.T) {
	root := nested(3)
	p := Policy{Kind: Auto, NoSplit: []string{"Block"}}
	parted := false
	for limit := int64(0); limit < 7000; limit += 8 {
		budgets := []Budget{{Device: CPU, Limit: limit}}
		plan, err := Solve(&meta.Model{Root: root}, budgets, p)
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		checkPlan(t, root, budgets, p, plan)
		at, _ := plan.Map.Device("block1.flat.w")
		other, _ := plan.Map.Device("block1.outer.w")
		parted = parted || at != other
	}
	if !parted {
		t.Error("no limit parts the block")
	}
}

// TestABlockWithATableStreamedWhatFits: of a table that stays with its block, of which a token reads a row, all bytes counted
// as saved. Plans then streamed a matrix of the block though all of it fits.
func TestABlockWithATableStreamedWhatFits(t *testing.T) {
	const all = (24 + 4 + 12 + 30) * 16 * 2
	for limit := int64(all); limit < 2*all; limit += 20 {
		plan, err := Solve(&meta.Model{Root: nested(1)}, []Budget{{Device: CPU, Limit: limit}}, Policy{NoSplit: []string{"Block"}})
		if err != nil {
			t.Fatal(err)
		}
		if plan.DiskBytesPerToken > 0 {
			t.Errorf("%d bytes of weights within %d: a token reads %d from the disk, by %s", all, limit, plan.DiskBytesPerToken, plan.Map)
		}
	}
}

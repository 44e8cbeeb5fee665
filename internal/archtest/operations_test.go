package archtest

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// operations has the numbers of operations of internal/backend's interfaces, without those of memory. A new one is work
// for every backend: it comes with its reason, and with its case in backendtest.
var operations = map[string]int{
	"Backend":       14,
	"Memory":        5,
	"Selective":     1, // Supports
	"Filler":        2,
	"Metered":       1,
	"Indexed":       2, // sparse attention
	"Blocked":       2, // attention to blocks of positions that differ by head, and their indexer
	"Averaged":      1, // averages of keys, by which an indexer chooses blocks
	"NGrams":        2, // a convolution with steps, and gates of streams
	"Recurrent":     3,
	"Scans":         1, // Mamba's, whose every number of a state decays by itself
	"GatedUnits":    1, // RecurrentGemma's, whose operands have shares that follow from their decays
	"KeyedAverages": 1, // RWKV's, which divides two sums of exponentials
	"HeadGates":     1, // in one step what products with ones do elsewhere

	"Compressed":   2, // entries of several tokens: a recurrence and an attention
	"EntryChooser": 1, // of Compressed and Averaged
	"Streams":      3, // hyper-connections: Sinkhorn's iterations, and sums whose weights are of each row

	"Alternating": 4, // alternating updates: sums whose weights are of each row, and statistics of rows

	"Images": 4, // convolutions and pools, with reverses that no composition of others has

	"Converter":     5,
	"Deinterleaver": 1,
	"Sharer":        1, // memory, with the methods of any

	"Gradients":             17, // with softmax by itself, which heads and attention with any mask train, and measures of distributions
	"RecurrentGradients":    3,
	"ScanGradients":         1,  // the reverse of Scans
	"GatedUnitGradients":    1,  // the reverse of GatedUnits
	"KeyedAverageGradients": 1,  // the reverse of KeyedAverages
	"AlternatingGradients":  4,  // the reverse of Alternating
	"BlockedGradients":      1,  // the reverse of Blocked's attention
	"CompressedGradients":   1,  // the reverse of Compressed's pool
	"StreamGradients":       3,  // the reverse of Streams
	"NGramGradients":        2,  // the reverse of NGrams
	"Recorder":              16, // with sums whose scale is learned, as in xIELU, weights of experts with learned scales, and angles of rope
}

// TestBackendHasFewOperations counts the coarse operations of internal/backend.
func TestBackendHasFewOperations(t *testing.T) {
	found := map[string]int{}
	for _, p := range packages(t) {
		if p.path != "internal/backend" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				s, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if i, ok := s.Type.(*ast.InterfaceType); ok {
					for _, m := range i.Methods.List {
						found[s.Name.Name] += len(m.Names) // none for an embedded interface
					}
				}
				return true
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if most, ok := operations[name]; !ok || found[name] > most {
			t.Errorf("backend.%s has %d operations, want at most %d", name, found[name], most)
		}
	}
	for name, most := range operations {
		if found[name] < most {
			t.Errorf("backend.%s has %d operations: lower its limit of %d", name, found[name], most)
		}
	}
}

// TestContextsOfPassesHaveNoModes: every variation of a pass of nn is a value that its caller gives (nn.Input,
// nn.Limits, nn.Training), not a flag that is set on the context beforehand.
func TestContextsOfPassesHaveNoModes(t *testing.T) {
	found := false
	for _, p := range packages(t) {
		if p.path != "internal/nn" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				s, ok := n.(*ast.TypeSpec)
				if !ok || s.Name.Name != "Context" {
					return true
				}
				for _, field := range s.Type.(*ast.StructType).Fields.List {
					found = true
					if id, ok := field.Type.(*ast.Ident); ok && id.Name == "bool" {
						t.Errorf("%s: nn.Context has the mode %s", f.set.Position(field.Pos()), field.Names[0].Name)
					}
				}
				return true
			})
		}
	}
	if !found {
		t.Error("internal/nn has no struct Context")
	}
}

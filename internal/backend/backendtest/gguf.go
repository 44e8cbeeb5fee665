package backendtest

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// ggufBlocks has random blocks of the types of GGUF files, with the values that the gguf Python
// package decodes from them; see scripts/make-gguf-fixtures.py.
//
//go:embed testdata/gguf-blocks.json.gz
var ggufBlocks []byte

// ggufCases returns matrices of blocks of the fixture, in random order.
func (e *env) ggufCases(f meta.QuantFormat) (out []coded) {
	var fixture map[string]struct {
		Columns        int
		Blocks, Values []byte
	}
	text, err := golden.Unpack(ggufBlocks)
	if err == nil {
		err = json.Unmarshal(text, &fixture)
	}
	if err != nil {
		e.Fatalf("the fixture of GGUF blocks: %v", err)
	}
	own := fixture[strings.ToUpper(strings.TrimSuffix(f.String(), " block"))]
	size, columns := int(f.BlockBytes()), f.BlockColumns()
	if columns != own.Columns {
		e.Fatalf("%v: got blocks of %d columns, the fixture has %d", f, columns, own.Columns)
	}
	var blocks [][]byte // with values whose sums are comparable
	var values [][]float32
	for i := range len(own.Blocks) / size {
		v, top := make([]float32, columns), 0.0
		for k := range v {
			v[k] = math.Float32frombits(binary.LittleEndian.Uint32(own.Values[4*(i*columns+k):]))
			top = max(top, math.Abs(float64(v[k])))
		}
		if top < 1e3 {
			blocks, values = append(blocks, own.Blocks[i*size:][:size]), append(values, v)
		}
	}
	for _, s := range []struct{ rows, blocks int }{{1, 1}, {7, 2}, {130, 3}} {
		c := coded{
			name: name(f, s.rows, s.blocks*columns), dtype: meta.Uint8, scaleType: meta.Float16, rows: s.rows, cols: s.blocks * columns,
			spec: meta.Quant{Format: f, Rows: 1, Columns: columns},
		}
		for range s.rows * s.blocks {
			i := e.random.IntN(len(blocks))
			c.codes, c.values = append(c.codes, blocks[i]...), append(c.values, values[i]...)
		}
		out = append(out, c)
	}
	return out
}

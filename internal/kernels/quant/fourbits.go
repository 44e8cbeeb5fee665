package quant

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/jsonscan"
	"github.com/heftai/heft/internal/kernels/mat"
)

// nf4 and fp4 are the tables of bitsandbytes.
var (
	nf4 = [16]float32{
		-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
		-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
		0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
	}
	fp4 = [16]float32{
		0, 0.0052083334885537624, 0.6666666865348816, 1, 0.3333333432674408, 0.5, 0.1666666716337204, 0.25,
		0, -0.0052083334885537624, -0.6666666865348816, -1, -0.3333333432674408, -0.5, -0.1666666716337204, -0.25,
	}
)

// nestedElements is the number of scales that share a scale of scales.
const nestedElements = 256

// round rounds a value of NF4 or FP4 to the dtype of its matrix.
func (p *Packed) round(v float32) float32 {
	if !tables[p.Packing].high {
		return v
	}
	switch p.Round {
	case mat.BFloat16:
		return floats.RoundBFloat16(v)
	case mat.Float16:
		return floats.RoundFloat16(v)
	}
	return v
}

// A State is the part of bitsandbytes' JSON state of an NF4 or FP4 matrix that dequantising
// needs.
type State struct {
	Elements int        // number that share a scale
	DType    mat.Format // dtype of the values
	Offset   float32    // added to nested scales
}

// ReadState decodes the fields of a State. It does not allocate unless it fails.
func ReadState(data []byte) (s State, err error) {
	size, ok := fieldOf(data, `"blocksize"`)
	if s.Elements, err = strconv.Atoi(size); !ok || err != nil || s.Elements < 1 {
		return s, fmt.Errorf("got blocksize %.20q, want a number", size)
	}
	switch name, _ := fieldOf(data, `"dtype"`); name {
	case "float32", "torch.float32":
		s.DType = mat.Float32
	case "bfloat16", "torch.bfloat16":
		s.DType = mat.BFloat16
	case "float16", "torch.float16":
		s.DType = mat.Float16
	default:
		return s, fmt.Errorf("got dtype %.20q, want float32, bfloat16 or float16", name)
	}
	if size, ok := fieldOf(data, `"nested_blocksize"`); ok && size != "256" {
		return s, fmt.Errorf("got nested_blocksize %.20q, want 256", size)
	}
	if offset, ok := fieldOf(data, `"nested_offset"`); ok {
		v, err := strconv.ParseFloat(offset, 32)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return s, fmt.Errorf("got nested_offset %.20q, want a finite number", offset)
		}
		s.Offset = float32(v)
	}
	return s, nil
}

// fieldOf returns the number or the text of a field of the JSON object data. name includes its
// quotes. The result shares data's memory.
func fieldOf(data []byte, name string) (value string, ok bool) {
	i := jsonscan.Space(data, 0)
	if i == len(data) || data[i] != '{' {
		return "", false
	}
	for i = jsonscan.Space(data, i+1); i < len(data) && data[i] == '"'; i = jsonscan.Space(data, i+1) {
		end, ok := jsonscan.StringEnd(data, i)
		at := jsonscan.Space(data, end)
		if !ok || at == len(data) || data[at] != ':' {
			return "", false
		}
		at = jsonscan.Space(data, at+1)
		after, kind := jsonscan.ValueEnd(data, at)
		next := jsonscan.Space(data, after)
		if kind != jsonscan.None || after == at || next == len(data) || data[next] != ',' && data[next] != '}' {
			return "", false // also if the object is truncated
		}
		if string(data[i:end]) == name {
			text := bytes.Trim(data[at:after], `"`)
			return unsafe.String(unsafe.SliceData(text), len(text)), true
		}
		i = next
	}
	return "", false
}

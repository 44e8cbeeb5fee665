// Package gguftest writes GGUF files for tests: [Write] takes a [Key] for each metadata entry and a [Tensor] for each
// tensor. [Unzipped] unpacks a file that is committed in fewer bytes.
package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/heftai/heft/internal/gguf"
)

// A Key is a metadata entry. Value is a uint32, int32, float32, bool, string, uint64, []string, []int32,
// []float32, []bool or [][]string.
type Key struct {
	Name  string
	Value any
}

// A Tensor is written as it is.
type Tensor struct {
	Name  string
	Type  gguf.Type
	Shape []int // slowest dimension first
	Data  []byte
}

// Alignment is that of the files.
const Alignment = 32

// Write returns a file of version 3.
func Write(keys []Key, tensors []Tensor) []byte {
	b := []byte(gguf.Magic)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendValue(appendText(b, k.Name), k.Value)
	}
	offset := 0
	for _, t := range tensors {
		b = appendText(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for i := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(t.Shape[len(t.Shape)-1-i]))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		offset += (len(t.Data) + Alignment - 1) / Alignment * Alignment
	}
	for _, t := range tensors {
		b = append(pad(b), t.Data...)
	}
	return b
}

// pad fills up to the alignment.
func pad(b []byte) []byte {
	for len(b)%Alignment != 0 {
		b = append(b, 0)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// The numbers of types of values.
const (
	kindU32    = 4
	kindI32    = 5
	kindF32    = 6
	kindBool   = 7
	kindString = 8
	kindArray  = 9
	kindU64    = 10
)

// appendValue appends a value with its type.
func appendValue(b []byte, value any) []byte {
	kind, list := kindArray, []byte(nil)
	switch v := value.(type) {
	case []string:
		list = appendArray(kindString, v)
	case []int32:
		list = appendArray(kindI32, v)
	case []float32:
		list = appendArray(kindF32, v)
	case []bool:
		list = appendArray(kindBool, v)
	case [][]string:
		list = appendArray(kindArray, v)
	default:
		kind, list = appendPlain(nil, value)
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(kind)), list...)
}

// appendPlain appends a value without its type, and returns the type.
func appendPlain(b []byte, value any) (int, []byte) {
	switch v := value.(type) {
	case uint32:
		return kindU32, binary.LittleEndian.AppendUint32(b, v)
	case int32:
		return kindI32, binary.LittleEndian.AppendUint32(b, uint32(v))
	case float32:
		return kindF32, binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	case uint64:
		return kindU64, binary.LittleEndian.AppendUint64(b, v)
	case string:
		return kindString, appendText(b, v)
	case bool:
		if v {
			return kindBool, append(b, 1)
		}
		return kindBool, append(b, 0)
	case []string:
		return kindArray, append(b, appendArray(kindString, v)...)
	}
	panic(fmt.Sprintf("gguftest: value of type %T", value))
}

// appendArray returns an array with the type of its elements.
func appendArray[T any](element uint32, list []T) []byte {
	b := binary.LittleEndian.AppendUint32(nil, element)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(list)))
	for _, x := range list {
		_, b = appendPlain(b, x)
	}
	return b
}

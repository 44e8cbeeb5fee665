package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/fstest"
)

// protoMessage returns a field of kind protoBytes.
func protoMessage(number uint64, content []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, number<<3|protoBytes), uint64(len(content))), content...)
}

func protoNumber(number, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, number<<3|protoVarint), value)
}

// spmFile is a tokenizer.model of a BPE with some pieces and fields of the normalizer.
func spmFile(pieces []spPiece, normalizer []byte) []byte {
	var file []byte
	for _, p := range pieces {
		score := binary.LittleEndian.AppendUint32(binary.AppendUvarint(nil, 2<<3|protoFixed32), math.Float32bits(p.score))
		file = append(file, protoMessage(1, slices.Concat(protoMessage(1, []byte(p.text)), score, protoNumber(3, uint64(p.kind))))...)
	}
	return slices.Concat(file, protoMessage(2, protoNumber(3, 2)), protoMessage(3, normalizer))
}

func genericTokenizer(t *testing.T, pieces []spPiece, normalizer []byte) *Tokenizer {
	t.Helper()
	tok, err := LoadFS(fstest.MapFS{"tokenizer.model": {Data: spmFile(pieces, normalizer)}, "config.json": {Data: []byte(`{"model_type":"mistral"}`)}}, "folder")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestGenericTokenizersIgnoredTheirSettings: the space before a text, the removal of spaces, scores that are not in
// the order of ids, and pieces that are tokens wherever they stand.
func TestGenericTokenizersIgnoredTheirSettings(t *testing.T) {
	pieces := []spPiece{{"<unk>", 0, 2}, {"<s>", 0, pieceControl}, {"</s>", 0, pieceControl}, {"  ", 0, pieceUserDefined}, {"!!", 0, pieceUserDefined},
		{"▁", -9, pieceNormal}, {"a", -9, pieceNormal}, {"b", -9, pieceNormal}, {"ab", -2, pieceNormal}, {"▁a", -1, pieceNormal}, {"!", -9, pieceNormal}, {"!a", -1, pieceNormal}}
	keep, plain := protoNumber(4, 0), slices.Concat(protoNumber(3, 0), protoNumber(4, 0))
	for _, c := range []struct {
		text       string
		normalizer []byte
		want       []int32
	}{
		{"ab", nil, []int32{9, 7}}, // ▁a before ab, by its score
		{"  b a ", nil, []int32{5, 7, 9}},
		{" b", keep, []int32{5, 5, 7}},
		{"ab a", plain, []int32{8, 9}},
		{"a!!!a", plain, []int32{6, 4, 11}},
		{"a!!a", plain, []int32{6, 4, 6}},
	} {
		if got, err := genericTokenizer(t, pieces, c.normalizer).EncodeIDs(c.text, EncodeOptions{}); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q with %x: got %v (%v), want %v", c.text, c.normalizer, got, err, c.want)
		}
	}
}

// TestManyUserDefinedPieces: ten thousand of them are found, the longest first.
func TestManyUserDefinedPieces(t *testing.T) {
	pieces := []spPiece{{"<unk>", 0, 2}, {"<s>", 0, pieceControl}, {"</s>", 0, pieceControl}}
	for i := range 10000 {
		pieces = append(pieces, spPiece{fmt.Sprintf("tok%d", i), 0, pieceUserDefined})
	}
	got, err := genericTokenizer(t, pieces, protoNumber(3, 0)).EncodeIDs("tok12tok9999tok1", EncodeOptions{})
	if want := []int32{15, 10002, 4}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}

package loader

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// FuzzHeader: any file is accepted with tensors that tile its data, or refused.
func FuzzHeader(f *testing.F) {
	for _, path := range golden.Glob(f, "infer/safetensors_bad/*.safetensors") {
		if b, err := golden.Read(path); err == nil && len(b) < 4096 {
			f.Add(b)
		}
	}
	for _, text := range []string{
		`{"__metadata__":{"format":"pt"},"a":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}`,
		`{"a":["F32",[],[0,4]],"\u00e9\ud83d\ude00":{"dtype":{"U8":null},"x":[1e3,true],"shape":[0],"data_offsets":[4,4]}}`,
	} {
		f.Add(append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), 1, 2, 3, 4))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := readHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Reason == "" {
				t.Fatalf("error without a reason: %v", err)
			}
			return
		}
		next := int64(8 + len(h.text))
		for _, x := range h.tensors {
			if x.Offset != next || x.Size < 0 {
				t.Fatalf("tensor %q at %d, want %d", x.Name, x.Offset, next)
			}
			next += x.Size
		}
		if next != int64(len(file)) {
			t.Fatalf("tensors end at %d of %d", next, len(file))
		}
		if err := agree(h); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzIndex: any shard that an index names is a plain file name.
func FuzzIndex(f *testing.F) {
	for _, path := range golden.Glob(f, "infer/index_bad/*/model.safetensors.index.json") {
		if b, err := golden.Read(path); err == nil {
			f.Add(b)
		}
	}
	f.Add([]byte(`{"metadata":{"total_size":1e9},"weight_map":{"a":"x.safetensors","b":"\u0079.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		weights, err := parseIndex(text)
		if err == nil && len(weights) == 0 {
			t.Fatal("an index of nothing was accepted")
		}
		for _, shard := range weights {
			if bytes.ContainsAny([]byte(shard), "/\\\x00:") || shard == "" || len(shard) > 255 {
				t.Fatalf("shard %q", shard)
			}
		}
	})
}

// FuzzOffloadIndex: any tensor kept in a file of its own has a plain name and a size.
func FuzzOffloadIndex(f *testing.F) {
	for _, path := range golden.Glob(f, "infer/offload/folder/index.json") {
		if b, err := golden.Read(path); err == nil {
			f.Add(b)
		}
	}
	f.Add([]byte(`{"a":{"dtype":"bfloat16","shape":[]},"b/c":{"safetensors_file":"x.safetensors","weight_name":"w"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parseOffload(text)
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.file == "" && (bytes.ContainsAny([]byte(e.name), "/\\\x00:") || e.size < 0) {
				t.Fatalf("entry %+v", e)
			}
		}
	})
}

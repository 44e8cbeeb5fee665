package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMergesReadInPlace: a file gives the same ids and the same errors whether its merges are read in place or after
// its other members, in any order of members.
func TestMergesReadInPlace(t *testing.T) {
	const vocab, merges = `"vocab":{"a":0,"b":1,"ab":2,"##b":3,"abb":4}`, `"merges":[["a","b"],["ab","b"]]`
	for _, model := range []string{
		`"type":"BPE",` + vocab + `,` + merges,
		`"type":"BPE",` + merges + `,` + vocab,
		vocab + `,` + merges + `,"type":"BPE"`,
		`"type":"BPE","continuing_subword_prefix":"##",` + vocab + `,"merges":[["a","##b"]]`,
		`"type":"BPE",` + vocab + `,"merges":[["a","##b"]],"continuing_subword_prefix":"##"`,
		`"type":"BPE",` + vocab + `,` + merges + `,"vocab":{"a":5,"b":6,"ab":7,"abb":8}`,
		`"type":"BPE",` + vocab + `,` + merges + `,"merges":[["a","b"]]`,
		`"type":"BPE",` + vocab + `,` + merges + `,"type":"WordLevel","unk_token":"a"`,
		`"type":"BPE",` + vocab + `,"merges":[["a","c"]]`,
		`"type":"BPE",` + vocab + `,"merges":[["a","b"],["a"]]`,
		`"type":"BPE","vocab":{"a":-1},` + merges,
		`"type":"BPE",` + vocab + `,"merges":null`,
		`"type":"BPE",` + vocab + `,"merges":["a b","ab b"]`,
		`"type":"BPE","vocab":{"a":0,"b":0,"ab":2,"abb":3},` + merges,
		`"type":"BPE",` + merges,
	} {
		for _, file := range []string{`{"model":{` + model + `}}`, `{"model":{` + model + `},"model":{` + model + `}}`, `{"model":{` + model} {
			got, err := Parse([]byte(file))
			want, wantErr := parse(&source{data: []byte(file)})
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != "tokenizer: "+wantErr.Error() {
				t.Errorf("%s: got error %v, want %v", file, err, wantErr)
			}
			if err != nil || wantErr != nil {
				continue
			}
			for _, text := range []string{"ab", "abb", "ba", "a"} {
				ids, _ := got.EncodeIDs(text, EncodeOptions{})
				if expected, _ := want.EncodeIDs(text, EncodeOptions{}); !slices.Equal(ids, expected) {
					t.Errorf("%s: %q is %v, want %v", file, text, ids, expected)
				}
			}
		}
	}
}

// TestLargeFilesAreReadOnce: a large file, whose memory is released while it is parsed, gives the tokenizer of its
// bytes, and errors with their places.
func TestLargeFilesAreReadOnce(t *testing.T) {
	data, dir := bigTokenizerJSON(20000), t.TempDir()
	path := filepath.Join(dir, FileName)
	if len(data) < earlyFile {
		t.Fatalf("the file has %d bytes", len(data))
	}
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(data)
	if tok, err := loadEarly(os.DirFS(dir)); tok == nil || err != nil {
		t.Fatalf("read in place: %v, %v", tok, err)
	}
	got, err := Load(dir)
	want, err2 := Parse(data)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{prose, "naïve 中文字 " + strings.Repeat("etaoin", 40), "\x00"} {
		ids, _ := got.EncodeIDs(text, EncodeOptions{})
		if expected, _ := want.EncodeIDs(text, EncodeOptions{}); !slices.Equal(ids, expected) {
			t.Errorf("%.20q: got %v, want %v", text, ids, expected)
		}
	}
	bad := bytes.Clone(data)
	at := bytes.Index(bad, []byte(`<0x41>`))
	bad[at] = 1
	write(bad)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("byte %d", at)) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error at byte %d of %s", err, at, path)
	}
}

package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAJSONListWasLines: files such as alpaca_data.json are one list of records. They were read as lines, none of which is a record.
func TestAJSONListWasLines(t *testing.T) {
	open := func(text string) (*JSONL, error) {
		path := filepath.Join(t.TempDir(), "data.json")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		d, err := OpenJSONL(path)
		if err == nil {
			t.Cleanup(func() { d.Close() })
		}
		return d, err
	}
	for text, want := range map[string]string{
		`[]`:                       "",
		" \n[ ]\n":                 "",
		`[{"text":"a"}]`:           "1 a;",
		"\ufeff[{\"text\":\"a\"}]": "1 a;",
		"[\n {\"text\":\n  \"a]}\\\"\"},\n\n {\"messages\": null, \"text\": \"b\"}\n]\n": `2 a]}";5 b;`,
		`[{"x":[[1],{"y":"\\"}],"text":"a"},{"text":"b"}]`:                               "1 a;1 b;",
	} {
		d, err := open(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got strings.Builder
		for i := range d.Len() {
			r, err := d.At(i)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			fmt.Fprintf(&got, "%d %s;", d.Line(i), *r.Text)
		}
		if got.String() != want {
			t.Errorf("%q: got %q, want %q", text, &got, want)
		}
	}
	for text, want := range map[string]string{
		"[{\"text\":\"a\"},\n":        "line 2: the JSON list has no end",
		"[{\"text\":\"a\"}]\n[{}]":    "line 2: got text behind the end of the JSON list",
		"[{\"text\":\"a\"}]{\"b\":1}": "line 1: got text behind the end",
	} {
		if _, err := open(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	d, err := open("[{\"text\":\"a\"},\n[1, 2]\n, {\"text\": b}]")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "line 2: got a list, want an object", "line 3: got text that is not JSON"} {
		if _, err := d.At(i); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("record %d: got %v, want %q", i, err, want)
		}
	}
}

package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func csvFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "some.CSV")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBytesThatAreNotUTF8AreAnError: JSON's decoder replaced them, so that models learned replacement characters.
func TestBytesThatAreNotUTF8AreAnError(t *testing.T) {
	lines := filepath.Join(t.TempDir(), "some.jsonl")
	if err := os.WriteFile(lines, []byte("{\"text\": \"caf\xe9\"}\n{\"text\": \"caf\u00e9\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{lines, csvFile(t, "text\ncaf\xe9\ncaf\u00e9\n")} {
		d, err := OpenJSONL(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.At(0); err == nil || !strings.Contains(err.Error(), "got byte 0xe9") || !strings.Contains(err.Error(), "want UTF-8") {
			t.Errorf("%s: got error %v, want one that names the byte 0xe9", path, err)
		}
		if r, err := d.At(1); err != nil || *r.Text != "caf\u00e9" {
			t.Errorf("%s: got %+v, %v", path, r, err)
		}
		d.Close()
	}
}

// TestCSVRecords: fields with quotes and line breaks, empty ones, lists of messages, comparisons.
func TestCSVRecords(t *testing.T) {
	d, err := OpenJSONL(csvFile(t, "\ufeffprompt,completion,id\r\nHi,\"Hello,\n\"\"you\"\"\",1\r\n\r\n[1],Two,2\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i, want := range []struct {
		prompt, completion string
		line               int
	}{{"Hi", "Hello,\n\"you\"", 2}, {"[1]", "Two", 5}} {
		r, err := d.At(i)
		if err != nil || *r.Prompt != want.prompt || *r.Completion != want.completion || d.Line(i) != want.line {
			t.Errorf("record %d at line %d: %+v, %v", i, d.Line(i), r, err)
		}
	}
	if d.Len() != 2 {
		t.Errorf("%d records, want 2", d.Len())
	}
	chats, err := OpenJSONL(csvFile(t, "messages,tools\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"Hi\"\"}]\",\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer chats.Close()
	if r, err := chats.At(0); err != nil || len(r.Messages) != 1 || r.Tools != nil {
		t.Errorf("a conversation: %+v, %v", r, err)
	}
	judged, err := OpenComparisons(csvFile(t, "prompt,completion,label\nHi,Hello,True\nHi,Go,0\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer judged.Close()
	for i := range judged.Len() {
		if r, err := judged.At(i); err != nil || len(r.Completions) != 1 {
			t.Errorf("a judged answer: %+v, %v", r, err)
		}
	}
}

// TestCSVErrors: errors name the line and the fault.
func TestCSVErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"text,text\na,b\n", `line 1: got the column "text" twice`},
		{"prompt,completion\na\n", "line 2: number of fields: got 1, want 2"},
		{"text\n\"a\n", `"`},
	} {
		// The file was before the package: "x.csv: data: line 2".
		if _, err := OpenJSONL(csvFile(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "data: ") ||
			strings.Count(err.Error(), "data: ") != 1 {
			t.Errorf("%q: %v, want %q after the package and the file", c.text, err, c.want)
		}
	}
	d, err := OpenComparisons(csvFile(t, "prompt,completion,label\nHi,Hello,yes\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.At(0); err == nil || !strings.Contains(err.Error(), `line 2: label: got "yes", want true or false`) {
		t.Error(err)
	}
	none, err := OpenJSONL(csvFile(t, ""))
	if err != nil || none.Len() != 0 {
		t.Errorf("an empty file: %v", err)
	}
}

package main

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/tokenizer"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

func TestParse(t *testing.T) {
	talks, err := parse("x", "A comment.\nMore of it.\n\nQ: a | b\nA: 1\nA: 2\nQ: c\nA: 3\n\nQ: d\nA: 4\n")
	want := []talk{
		{{[]string{"a", "b"}, []string{"1", "2"}}, {[]string{"c"}, []string{"3"}}},
		{{[]string{"d"}, []string{"4"}}},
	}
	if err != nil || !reflect.DeepEqual(talks, want) {
		t.Errorf("got %v, %v; want %v", talks, err, want)
	}
	for text, place := range map[string]string{"Q: a\nA: b\noops": "x:3", "Q: a\n\nQ: b\nA: c": `"a"`} {
		if _, err := parse("x", text); err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("parse(%q): %v, want an error about %s", text, err, place)
		}
	}
}

// TestModelHasReadTheText fails where text/ was changed and the model not trained again.
func TestModelHasReadTheText(t *testing.T) {
	_, sum, err := read()
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.OpenFS(demo.Name, demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.Metadata()["text"]; got != sum {
		t.Errorf("the model has read texts of sum %.8s, text/ is %.8s: run make demo", got, sum)
	}
}

// TestCleanVocabulary fails if the vocabulary next to the model is not that of text/.
func TestCleanVocabulary(t *testing.T) {
	dir := t.TempDir()
	if err := generate(t.Context(), dir, false, embedded, standard); err != nil {
		t.Fatal(err)
	}
	made, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := fs.ReadFile(demo.Files(), tokenizer.FileName)
	if err != nil {
		t.Fatal(err)
	}
	have, err := tokenizer.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	const text = "What is a device map, and what is 12 + 30?"
	a, _ := made.EncodeIDs(text, tokenizer.EncodeOptions{})
	b, _ := have.EncodeIDs(text, tokenizer.EncodeOptions{})
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%v with the vocabulary of text/, %v with the model's", a, b)
	}
}

// TestLessons looks at drawn conversations: the same each time, answers learned alone.
func TestLessons(t *testing.T) {
	talks, _, err := read()
	if err != nil {
		t.Fatal(err)
	}
	file, err := fs.ReadFile(demo.Files(), tokenizer.FileName)
	if err != nil {
		t.Fatal(err)
	}
	words, err := tokenizer.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	l := &lessons{newTeacher(talks), words, standard}
	for i := range 50 {
		s, err := l.At(i)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := l.At(i); !reflect.DeepEqual(s, again) {
			t.Fatalf("lesson %d is not the same twice", i)
		}
		if len(s.IDs) != l.Length || s.IDs[0] != bosID {
			t.Fatalf("lesson %d has %d tokens and begins with %d", i, len(s.IDs), s.IDs[0])
		}
		answers := false
		for j, id := range s.IDs {
			if learned := s.Labels[j] != data.IgnoreLabel; learned != answers {
				t.Fatalf("lesson %d, token %d (%s): learned is %v: %s", i, j, words.Decode(s.IDs[j:j+1], false), learned, words.Decode(s.IDs, false))
			}
			answers = id == assistantID || answers && id != endID
		}
	}
}

func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		e := sum(r)
		if strings.Contains(e.question, "2 plus 2") && e.answer != "4." || strings.Contains(e.answer, "-") {
			t.Errorf("%q: %q", e.question, e.answer)
		}
	}
}

// TestTeach takes two small steps and opens the model that they write.
func TestTeach(t *testing.T) {
	talks, sum, err := read()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := generate(t.Context(), dir, false, embedded, standard); err != nil {
		t.Fatal(err)
	}
	r := standard
	r.Steps, r.Batch, r.Length, r.Warmup = 2, 2, 24, 1
	if err := teach(context.Background(), dir, talks, sum, embedded, r); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for tensor := range c.Tensors() {
		if tensor.DType != meta.BFloat16 {
			t.Errorf("%s is %v", tensor.Name, tensor.DType)
		}
	}
}

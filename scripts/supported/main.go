// Command supported writes the generated tables of docs/models.md between the comments that mark their
// places: the supported models with the committed fixtures that show each, and what well-known models
// need in memory and read from the disk.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/gguf/folder"
	"github.com/heftai/heft/meta"
)

const (
	begin = "<!-- supported: begin (go generate ./meta) -->\n"
	end   = "<!-- supported: end -->"

	ggufBegin = "<!-- gguf: begin (go generate ./meta) -->\n"
	ggufEnd   = "<!-- gguf: end -->"
)

func main() {
	log.SetFlags(0)
	page := flag.String("page", "docs/models.md", "file to rewrite")
	fixtures := flag.String("fixtures", "testdata/golden", "folder of the committed fixtures")
	models := flag.String("known", "testdata/known", "folder of the configs of well-known models")
	flag.Parse()
	text, err := rewrite(*page, *fixtures, *models)
	if err == nil {
		err = atomicfile.WriteFile(*page, text)
	}
	if err != nil {
		log.Fatal("supported: ", err)
	}
}

// rewrite returns the page with the tables of now.
func rewrite(page, fixtures, models string) ([]byte, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	served, err := namesByType(filepath.Join(fixtures, "infer", "models"))
	if err != nil {
		return nil, err
	}
	trained, err := namesByType(filepath.Join(fixtures, "train", "gradients"))
	if err != nil {
		return nil, err
	}
	var architectures, memory, files bytes.Buffer
	for _, wrapper := range []bool{false, true} {
		table(&architectures, wrapper, served, trained)
	}
	if err := knownTable(&memory, models); err != nil {
		return nil, err
	}
	ggufTable(&files)
	if text, err = replace(text, begin, end, architectures.Bytes()); err == nil {
		text, err = replace(text, knownBegin, knownEnd, memory.Bytes())
	}
	if err == nil {
		text, err = replace(text, ggufBegin, ggufEnd, files.Bytes())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	return text, nil
}

// replace returns text with a table between the comments begin and end.
func replace(text []byte, begin, end string, table []byte) ([]byte, error) {
	from, to := bytes.Index(text, []byte(begin)), bytes.Index(text, []byte(end))
	if from < 0 || to < from {
		return nil, fmt.Errorf("no place for a table: %q is missing", strings.TrimSpace(begin))
	}
	return slices.Concat(text[:from], []byte(begin), table, text[to:]), nil
}

// ggufTable writes the architectures of GGUF files.
func ggufTable(out *bytes.Buffer) {
	out.WriteString("| `general.architecture` | `model_type` |\n|---|---|\n")
	for _, a := range folder.Architectures() {
		fmt.Fprintf(out, "| %s | %s |\n", a.Name, strings.Join(a.ModelTypes, ", "))
	}
}

// table writes the text models, or the models that have other inputs as well.
func table(out *bytes.Buffer, wrapper bool, served, trained map[string][]string) {
	if wrapper {
		out.WriteString("\nOf models with images, the text is served:\n\n")
	}
	out.WriteString("| architecture | `model_type` | logits, LoRA: `infer/models/` | gradients: `train/gradients/` |\n|---|---|---|---|\n")
	for _, t := range meta.Architectures() {
		if meta.IsWrapper(t) == wrapper {
			fmt.Fprintf(out, "| %s | `%s` | %s | %s |\n", meta.RootClass(t), t, list(served[t]), list(trained[t]))
		}
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return strings.Join(names, ", ")
}

// namesByType returns the folders with a config.json, by their model_type.
func namesByType(folder string) (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "config.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no fixtures in %s: %w", folder, err)
	}
	slices.Sort(files)
	names := map[string][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config, err := meta.ReadConfig(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		names[config.ModelType] = append(names[config.ModelType], filepath.Base(filepath.Dir(file)))
	}
	return names, nil
}

// Command supported writes the table of supported architectures into docs/models.md, between the
// two comments that mark its place, from meta's own table.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/meta"
)

const (
	begin = "<!-- supported: begin (go generate ./meta) -->\n"
	end   = "<!-- supported: end -->"
)

func main() {
	log.SetFlags(0)
	page := flag.String("page", "docs/models.md", "file to rewrite")
	flag.Parse()
	if err := rewrite(*page); err != nil {
		log.Fatal("supported: ", err)
	}
}

func rewrite(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	from, to := bytes.Index(text, []byte(begin)), bytes.Index(text, []byte(end))
	if from < 0 || to < from {
		return fmt.Errorf("%s has no place for the table", name)
	}
	var out bytes.Buffer
	out.Write(text[:from])
	out.WriteString(begin + "| architecture | `model_type` |\n|---|---|\n")
	for _, t := range meta.Architectures() {
		fmt.Fprintf(&out, "| %s | `%s` |\n", meta.RootClass(t), t)
	}
	out.Write(text[to:])
	return atomicfile.WriteFile(name, out.Bytes())
}

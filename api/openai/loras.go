package openai

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/smallfile"
)

// Adapters serves vLLM's endpoints that load and unload LoRA adapters. Clients can only name
// folders below one folder of the server.
type Adapters struct {
	models *generate.Models
	dir    string
}

// NoAdapters is the message of both endpoints if there is no folder of adapters.
const NoAdapters = "This server loads no adapters: start serve with --lora-dir DIR."

// NewAdapters returns the endpoints for the adapters below dir. If dir is "", they return 404.
func NewAdapters(models *generate.Models, dir string) *Adapters { return &Adapters{models, dir} }

// Load serves POST /v1/load_lora_adapter.
func (s *Adapters) Load(w http.ResponseWriter, r *http.Request) {
	name, dir, base := "", "", ""
	inPlace := false
	err := s.read(r, func(f *wire.Fields) {
		requireString(f, "lora_name", &name)
		requireString(f, "lora_path", &dir)
		f.String("base_model_name", &base)
		if f.Bool("load_inplace", &inPlace); inPlace {
			f.Fail("load_inplace", "{} is not supported: unload the adapter first.")
		}
	})
	if err == nil {
		dir, err = s.folder(dir)
	}
	if err == nil {
		if base == "" {
			base = s.models.BaseOf(lora.BaseModel(dir))
		}
		err = s.models.LoadAdapter(r.Context(), base, name, dir)
	}
	if err != nil {
		respond(w, err)
		return
	}
	success(w, "Success: LoRA adapter '"+name+"' added successfully.")
}

// Unload serves POST /v1/unload_lora_adapter.
func (s *Adapters) Unload(w http.ResponseWriter, r *http.Request) {
	name := ""
	err := s.read(r, func(f *wire.Fields) { requireString(f, "lora_name", &name) })
	if err == nil {
		err = s.models.UnloadAdapter(name)
	}
	if err != nil {
		respond(w, err)
		return
	}
	success(w, "Success: LoRA adapter '"+name+"' removed successfully.")
}

// mostName is the maximum length of the fields of these requests in bytes.
const mostName = 512

// requireString reads a required string.
func requireString(f *wire.Fields, name string, to *string) {
	f.String(name, to)
	switch {
	case f.Err() != nil:
	case *to == "":
		f.Fail(name, "Missing required parameter: '"+name+"'.")
	case len(*to) > mostName || strings.ContainsFunc(*to, func(c rune) bool { return !unicode.IsPrint(c) }):
		f.Fail(name, "Invalid value for {}: want at most %d bytes of printable text.", mostName)
	}
}

// read reads a request about an adapter.
func (s *Adapters) read(r *http.Request, decode func(*wire.Fields)) error {
	if s.dir == "" && wire.DescriptionOf(r.Context()) == nil {
		return &wire.Error{Kind: wire.NotFound, Message: NoAdapters}
	}
	return wire.ReadFields(r, decode)
}

// folder returns the folder of the adapter with a client's name. Neither the folder nor its files
// may be outside the server's folder, either by name or through a link.
func (s *Adapters) folder(name string) (string, error) {
	local, err := filepath.Localize(filepath.ToSlash(filepath.Clean(name)))
	if err != nil || local == "." {
		return "", wire.Invalidf("lora_path", "Invalid value for 'lora_path': want the name of a folder below the server's --lora-dir.")
	}
	root, err := smallfile.OpenRoot(s.dir)
	if err != nil {
		return "", &wire.Error{Message: "The server's --lora-dir cannot be read: see the log of the server.", Err: err}
	}
	defer root.Close()
	if err := lora.InRoot(root, local); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", &wire.Error{Kind: wire.NotFound, Field: "lora_path", Message: "There is no adapter in this folder."}
		}
		return "", wire.Invalidf("lora_path", "Invalid value for 'lora_path': the folder or a file in it is not below the server's --lora-dir.")
	}
	return filepath.Join(s.dir, local), nil
}

// success writes a success in vLLM's form, plain text.
func success(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text) // the client may have disconnected
}

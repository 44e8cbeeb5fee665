package batches

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/atomicfile"
)

// UploadBytes is the memory that an upload takes.
const UploadBytes = 4 * uploadBuffer

// respond writes v, or err if it is not nil.
func respond(w http.ResponseWriter, v any, err error) {
	switch {
	case err == nil:
		wire.WriteJSON(w, http.StatusOK, v)
	case errors.Is(err, store.ErrFull):
		openaijson.WriteError(w, wire.Invalidf("", "The store is full: delete files, or start the server with a larger --store-limit."))
	case errors.Is(err, errManyFiles), errors.Is(err, errManyBatches):
		openaijson.WriteError(w, wire.Invalidf("", "%s.", strings.TrimPrefix(err.Error(), "batches: ")))
	case atomicfile.IsFull(err), errors.As(err, new(*fs.PathError)):
		e := &wire.Error{Kind: wire.Internal, Message: "The server cannot write or read its files: " + reasonOf(err), Err: err}
		wire.PrepareError(w, e, err) // the log names the path
		wire.WriteJSON(w, e.Kind.Status(), openaijson.NewErrorBody(e))
	default:
		openaijson.WriteError(w, err)
	}
}

// available reports whether files and batches are served. If not, it answers the request with an
// error.
func (s *Server) available(w http.ResponseWriter, r *http.Request) bool {
	if wire.DescriptionOf(r.Context()) != nil {
		return true
	}
	var err error
	if s.off != "" {
		err = wire.Invalidf("", "%s", s.off)
	} else {
		err = s.refresh()
	}
	answer := func(w http.ResponseWriter, err error) { respond(w, nil, err) }
	switch {
	case err == nil:
		return true
	case r.ContentLength != 0:
		wire.RejectUnread(w, r, answer, err)
	default:
		answer(w, err)
	}
	return false
}

// Upload serves POST /v1/files. It writes the file to disk while it receives it.
func (s *Server) Upload(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	f, err := s.upload(r)
	if err != nil {
		err = uploadError(err)
		var own *wire.Error
		if errors.As(err, &own) || errors.Is(err, store.ErrFull) {
			wire.RejectUnread(w, r, func(w http.ResponseWriter, err error) { respond(w, nil, err) }, err)
			return
		}
	}
	respond(w, f, err)
}

// uploadError converts err for clients. Errors in a multipart body are the client's.
func uploadError(err error) error {
	var own *wire.Error
	if errors.As(err, &own) {
		return own
	}
	for _, bad := range []error{io.ErrUnexpectedEOF, io.EOF, http.ErrMissingBoundary, http.ErrNotMultipart, multipart.ErrMessageTooLarge} {
		if errors.Is(err, bad) {
			return wire.Invalidf("", "We could not read the parts of your request: %v.", err)
		}
	}
	if strings.HasPrefix(err.Error(), "multipart: ") || strings.HasPrefix(err.Error(), "mime: ") {
		return wire.Invalidf("", "We could not read the parts of your request: %v.", err)
	}
	return err
}

// upload reads the parts of a request and stores the file.
func (s *Server) upload(r *http.Request) (*file, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, wire.Invalidf("", "The body of your request must be multipart/form-data with the fields 'purpose' and 'file': %v.", err)
	}
	now := s.now()
	k := &keptFile{Owner: wire.OwnerOf(r.Context()), Order: newOrder(now), File: file{ID: newID("file-"), Object: "file", CreatedAt: now.Unix(), Status: "processed"}}
	size, err := s.readParts(parts, &k.File)
	if err == nil {
		err = check(&k.File, size)
	}
	if err == nil {
		k.File.Bytes = size
		err = s.files.add(k)
	}
	if err != nil {
		if size >= 0 {
			s.files.drop(k.File.ID, size)
		}
		return nil, err
	}
	return &k.File, nil
}

// readParts fills f from the parts of an upload and writes the contents to disk. It returns their
// size, or -1 if there were none.
func (s *Server) readParts(parts *multipart.Reader, f *file) (size int64, err error) {
	size = -1
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return size, err
		}
		switch name := p.FormName(); {
		case name == "purpose":
			b, err := io.ReadAll(io.LimitReader(p, maxFilename))
			if err != nil {
				return size, err
			}
			f.Purpose = string(b)
		case name == "file" && size < 0:
			f.Filename = filename(p)
			n, err := s.files.upload(f.ID, p)
			if err != nil {
				return size, err
			}
			size = n
		default:
			return size, wire.Invalidf(name, "Invalid field '%.100s': the fields of an upload are 'purpose' and one 'file'.", name)
		}
	}
}

// maxFilename is the maximum length of a file's name in bytes. Longer names are cut.
const maxFilename = 255

// filename returns the name of an uploaded file without folders. The name is shown to clients and
// is never part of a path.
func filename(p *multipart.Part) string {
	_, values, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	name := strings.ToValidUTF8(filepath.Base(values["filename"]), "_")
	return strings.ToValidUTF8(name[:min(len(name), maxFilename)], "")
}

func check(f *file, size int64) error {
	switch {
	case f.Purpose == "":
		return wire.Invalidf("purpose", "Missing required parameter: 'purpose'.")
	case f.Purpose != purposeBatch:
		return wire.Invalidf("purpose", "Invalid value for 'purpose': got %.100q, expected %q.", f.Purpose, purposeBatch)
	case size < 0:
		return wire.Invalidf("file", "Missing required parameter: 'file'.")
	}
	return nil
}

// page is a page of a list.
type page[T any] struct {
	Object string  `json:"object"`
	Data   []T     `json:"data"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
	More   bool    `json:"has_more"`
}

// newPage returns at most limit elements of all that follow the element with the id after.
func newPage[T any](all []T, id func(*T) *string, after string, limit int) (*page[T], error) {
	if after != "" {
		i := 0
		for i < len(all) && *id(&all[i]) != after {
			i++
		}
		if i == len(all) {
			return nil, wire.Invalidf("after", "Invalid value for 'after': the list has no element '%.100s'.", after)
		}
		all = all[i+1:]
	}
	p := &page[T]{Object: "list", Data: append([]T{}, all[:min(limit, len(all))]...), More: len(all) > limit}
	if n := len(p.Data); n > 0 {
		p.First, p.Last = id(&p.Data[0]), id(&p.Data[n-1])
	}
	return p, nil
}

// Bounds of the limit of a list of files.
const usualFiles, mostFiles = 10_000, 10_000

// Files serves GET /v1/files. It lists the newest file first unless order is asc.
func (s *Server) Files(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	limit, descending, after, purpose := usualFiles, true, "", ""
	err := wire.ReadQuery(r, func(f *wire.Fields) {
		f.Integer("limit", &limit, 1, mostFiles)
		f.Order("order", &descending)
		f.String("after", &after)
		f.String("purpose", &purpose)
	})
	if err != nil {
		respond(w, nil, err)
		return
	}
	all := s.files.list(wire.OwnerOf(r.Context()), purpose)
	if descending {
		slices.Reverse(all)
	}
	p, err := newPage(all, func(f *file) *string { return &f.ID }, after, limit)
	respond(w, p, err)
}

// fileOf returns the file that a request names.
func (s *Server) fileOf(r *http.Request) (*keptFile, error) {
	id := r.PathValue("id")
	k, err := s.files.find(wire.OwnerOf(r.Context()), id)
	if err != nil {
		return nil, unknownFile(id)
	}
	return k, nil
}

func unknownFile(id string) error {
	return &wire.Error{Kind: wire.NotFound, Field: "id", Message: fmt.Sprintf("No such File object: %.100s", id)}
}

// File serves GET /v1/files/{id}.
func (s *Server) File(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	k, err := s.fileOf(r)
	if err != nil {
		respond(w, nil, err)
		return
	}
	respond(w, k.File, nil)
}

// Content serves GET /v1/files/{id}/content. It streams the file from disk.
func (s *Server) Content(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	k, err := s.fileOf(r)
	if err != nil {
		respond(w, nil, err)
		return
	}
	in, err := s.files.open(k)
	if errors.Is(err, errNoFile) {
		err = unknownFile(k.File.ID)
	}
	if err != nil {
		respond(w, nil, err)
		return
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		respond(w, nil, fmt.Errorf("batches: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": k.File.Filename}))
	http.ServeContent(w, r, "", info.ModTime(), in)
}

// DeleteFile serves DELETE /v1/files/{id}. It rejects the input of a batch that has not ended.
func (s *Server) DeleteFile(w http.ResponseWriter, r *http.Request) {
	if !s.available(w, r) {
		return
	}
	k, err := s.fileOf(r)
	if err == nil {
		if batch, used := s.usesInput(k.File.ID); used {
			err = wire.Invalidf("id", "The file is the input of %s, which has not ended: cancel it first.", batch)
		}
	}
	if err == nil {
		err = s.files.remove(k)
	}
	respond(w, deletedFile{r.PathValue("id"), "file", true}, err)
}

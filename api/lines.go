package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine/holder"
)

// uploads is the path of uploads, whose bodies are written to disk as they arrive.
const uploads = "/v1/files"

// limit enforces the memory of requests. The bodies of uploads are not kept in memory.
func limit(requests *wire.Memory, errorsOf func(*http.Request) wire.ErrorWriter) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		others := requests.Limit(errorsOf)(next)
		upload := requests.Streams(batches.UploadBytes, openai.WriteError, next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == uploads {
				upload.ServeHTTP(w, r)
				return
			}
			others.ServeHTTP(w, r)
		})
	}
}

// usualSlots is the number of lines of batches that run at once while no model is loaded.
const usualSlots = 16

// slots returns the number of lines of batches that run at once.
func (s *service) slots() int {
	for _, k := range s.models.Known() {
		if k.Model != nil {
			return holder.Engine(k.Model).Slots()
		}
	}
	return usualSlots
}

// clientOf returns the client on whose behalf the lines of an owner's batches run, with the current
// limits of its key.
func (s *service) clientOf(owner string) (c *wire.Client, later bool, err error) {
	if s.Keys != nil {
		if k := s.Keys.Owner(owner); k != nil {
			return k.Client(), !k.HasTokens(), nil
		}
	}
	known := owner == "" && len(s.APIKeys) == 0 && s.Keys == nil
	for _, k := range s.APIKeys {
		sum := sha256.Sum256([]byte(k))
		known = known || hex.EncodeToString(sum[:]) == owner
	}
	if !known {
		return nil, false, &wire.Error{Kind: wire.Unauthorized, Message: "The API key of this batch is no longer valid."}
	}
	return &wire.Client{ID: owner}, false, nil
}

package batches

import "github.com/heftai/heft/api/wire"

// upload is the form of POST /v1/files.
type upload struct {
	File    []byte `json:"file"`
	Purpose string `json:"purpose"`
}

// deletedFile is the response of DELETE /v1/files/{id}.
type deletedFile struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Types returns the types of this package's endpoints by method and path.
func Types() map[string]wire.Types {
	return map[string]wire.Types{
		"POST /v1/files":               {Summary: "Keeps a file for batches.", Reads: wire.ReadsForm, Form: upload{}, Answer: file{}},
		"GET /v1/files":                {Summary: "Lists files.", Reads: wire.ReadsQuery, Answer: page[file]{}},
		"GET /v1/files/{id}":           {Summary: "Describes a file.", Answer: file{}},
		"GET /v1/files/{id}/content":   {Summary: "Returns the content of a file.", Media: "application/octet-stream"},
		"DELETE /v1/files/{id}":        {Summary: "Deletes a file.", Answer: deletedFile{}},
		"POST /v1/batches":             {Summary: "Answers the lines of a file in the background.", Reads: wire.ReadsBody, Answer: batch{}},
		"GET /v1/batches":              {Summary: "Lists batches.", Reads: wire.ReadsQuery, Answer: page[batch]{}},
		"GET /v1/batches/{id}":         {Summary: "Describes a batch.", Answer: batch{}},
		"POST /v1/batches/{id}/cancel": {Summary: "Cancels a batch.", Answer: batch{}},
	}
}

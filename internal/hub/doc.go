// Package hub fetches models from a Hugging Face hub into the hub's cache on disk.
//
// The nouns: a [Repo] is a model's name, ORG/NAME; a revision is a branch, a tag or a
// commit of it; a snapshot is a folder with the files of one commit. A [Client] speaks to
// one endpoint and one cache.
//
// The flow: [Client.Pull] resolves the revision to a commit, lists its files, picks those
// that serving needs, fetches what the cache lacks and gives the snapshot's folder.
// [Client.Cached] finds a snapshot without the network. [Client.FetchHeaders] brings only
// config.json, the index and the headers of the safetensors files: enough to plan a model
// of any size with a few megabytes.
//
// The cache has the layout of the Python package huggingface_hub, so that both share one:
//
//	CACHE/models--ORG--NAME/refs/REVISION           the commit of a branch or tag
//	CACHE/models--ORG--NAME/blobs/HASH              a file's bytes
//	CACHE/models--ORG--NAME/snapshots/COMMIT/FILE   a link to ../../blobs/HASH
//	CACHE/.locks/models--ORG--NAME/HASH.lock        held while HASH is fetched
//
// Beside these are Heft's own blobs/HASH.heft.incomplete with its HASH.heft.state, a
// download that can continue, and headers/HASH, the first bytes of a safetensors file.
//
// A blob gets its name only after its bytes were hashed. The server is not trusted: sizes,
// hashes, ranges, validators and names are checked, and the token goes to the endpoint
// only, never to where it redirects. A ref is written after all of its snapshot is there,
// and weights come after all other files, so that a snapshot with all weights is whole.
//
// The package does not know what the files mean, and reads no environment: values come
// in a [Config]. Its errors are *[Error].
package hub

// Package keys reads API keys from a file, with a name and limits for each, and holds clients to them.
//
// A [Set] finds the key that a request brings. [Key.Enter] admits the request or says when to retry. The file is read
// again when it changes ([Set.Watch]) or on demand ([Set.Reload]); what keys have used up is kept by name.
package keys

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	encoding "encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json" // reads whole numbers as such
)

const (
	configDigest   = "triptych.dev/config-digest"
	revision       = "triptych.dev/revision"
	revisionDigits = 16
)

// Templates are what `desired_state` makes of the benchmark's resource, with words in the places of
// what differs from resource to resource, by the value of the field that the benchmark changes.
type Templates struct {
	Name      string                           `json:"name"`
	Namespace string                           `json:"namespace"`
	UID       string                           `json:"uid"`
	Field     []string                         `json:"field"`
	ByValue   map[string][]encoding.RawMessage `json:"byValue"`
}

func readTemplates(path string) (*Templates, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	templates := &Templates{}
	return templates, json.Unmarshal(text, templates)
}

// Desired gives the children of a resource, what pods need before the pods.
func (t *Templates) Desired(resource *unstructured.Unstructured) ([]map[string]any, error) {
	value, _, err := unstructured.NestedString(resource.Object, t.Field...)
	if err != nil {
		return nil, err
	}
	templates, known := t.ByValue[value]
	if !known {
		return nil, fmt.Errorf("no templates for the value %q of %s", value, strings.Join(t.Field, "."))
	}
	words := strings.NewReplacer(
		t.Name, resource.GetName(), t.Namespace, resource.GetNamespace(), t.UID, string(resource.GetUID()))
	children := make([]map[string]any, 0, len(templates))
	for _, template := range templates {
		child := map[string]any{}
		if err := json.Unmarshal([]byte(words.Replace(string(template))), &child); err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, stamp(children)
}

// Stamp gives each pod template the digest of its ConfigMap and then its own revision, which depend on
// the resource's name.
func stamp(children []map[string]any) error {
	digests := map[string]string{}
	for _, child := range children {
		name, _, _ := unstructured.NestedString(child, "metadata", "name")
		switch child["kind"] {
		case "ConfigMap":
			text, _, _ := unstructured.NestedString(child, "data", "config.json")
			sum := sha256.Sum256([]byte(text))
			digests[name] = hex.EncodeToString(sum[:])
		case "Deployment":
			if err := stampPods(child, digests[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func stampPods(deployment map[string]any, digest string) error {
	template, _, err := unstructured.NestedFieldNoCopy(deployment, "spec", "template")
	if err != nil {
		return err
	}
	pods := template.(map[string]any)
	if err := unstructured.SetNestedField(pods, digest, "metadata", "annotations", configDigest); err != nil {
		return err
	}
	unstructured.RemoveNestedField(pods, "metadata", "labels", revision)
	var text bytes.Buffer
	encoder := encoding.NewEncoder(&text) // sorts keys
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(pods); err != nil {
		return err
	}
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	label := hex.EncodeToString(sum[:])[:revisionDigits]
	return unstructured.SetNestedField(pods, label, "metadata", "labels", revision)
}

// Decodes OpenShift's own kinds strictly: kube-apiserver does not know them, and OpenShift publishes no schemas.
// Reads YAML documents from standard input; prints "KIND NAME" for each, or what is wrong with it, and exits 1.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	build "github.com/openshift/api/build/v1"
	image "github.com/openshift/api/image/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	kyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

var kinds = map[string]func() any{
	"build.openshift.io/v1 BuildConfig": func() any { return new(build.BuildConfig) },
	"image.openshift.io/v1 ImageStream": func() any { return new(image.ImageStream) },
}

func main() {
	reader := kyaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = decode(document)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func decode(document []byte) error {
	var meta struct {
		v1.TypeMeta `json:",inline"`
		Metadata    v1.ObjectMeta `json:"metadata"`
	}
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return err
	}
	create, known := kinds[meta.APIVersion+" "+meta.Kind]
	if !known {
		return fmt.Errorf("%s %s: this decoder does not know %s", meta.Kind, meta.Metadata.Name, meta.APIVersion)
	}
	data, err := yaml.YAMLToJSONStrict(document)
	if err == nil {
		// As an API server decodes: unlike encoding/json it tells "lookUpPolicy" from "lookupPolicy".
		var unknown []error
		unknown, err = json.UnmarshalStrict(data, create())
		err = errors.Join(append(unknown, err)...)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", meta.Kind, meta.Metadata.Name, err)
	}
	fmt.Println(meta.Kind, meta.Metadata.Name)
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const fieldManager = "peer"

var resourceKind = schema.GroupVersionKind{
	Group: "triptych.dev", Version: "v1alpha1", Kind: "MultimodalService",
}

func childKinds() []client.Object {
	return []client.Object{
		&corev1.ServiceAccount{}, &corev1.ConfigMap{}, &networkingv1.NetworkPolicy{}, &corev1.Service{},
		&policyv1.PodDisruptionBudget{}, &appsv1.Deployment{}, &autoscalingv2.HorizontalPodAutoscaler{},
	}
}

// Reconciler applies what differs from the cached children, admits pods, and writes a status that
// differs.
type Reconciler struct {
	client.Client
	Templates *Templates
}

// Reconcile brings one resource to what it declares.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	resource := &unstructured.Unstructured{}
	resource.SetGroupVersionKind(resourceKind)
	if err := r.Get(ctx, request.NamespacedName, resource); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if resource.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	desired, err := r.Templates.Desired(resource)
	if err != nil {
		return ctrl.Result{}, err
	}
	deployments := []*appsv1.Deployment{}
	for _, manifest := range desired {
		child, err := r.apply(ctx, manifest)
		if err != nil {
			return ctrl.Result{}, err
		}
		if deployment, is := child.(*appsv1.Deployment); is {
			deployments = append(deployments, deployment)
		}
	}
	if err := r.admit(ctx, resource); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.writeStatus(ctx, resource, deployments)
}

// apply gives the child as it is now; it is only written when a desired field is missing or differs.
func (r *Reconciler) apply(ctx context.Context, manifest map[string]any) (client.Object, error) {
	wanted := &unstructured.Unstructured{Object: manifest}
	child, err := r.typed(wanted.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	err = r.Get(ctx, client.ObjectKeyFromObject(wanted), child)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil {
		found, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
		if err != nil || holds(found, withoutKind(manifest)) {
			return child, err
		}
	}
	body, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	child.SetNamespace(wanted.GetNamespace())
	child.SetName(wanted.GetName())
	patch := client.RawPatch(types.ApplyPatchType, body)
	return child, r.Patch(ctx, child, patch, client.FieldOwner(fieldManager), client.ForceOwnership)
}

func (r *Reconciler) typed(kind schema.GroupVersionKind) (client.Object, error) {
	made, err := r.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	return made.(client.Object), nil
}

// withoutKind leaves out what cached objects do not say.
func withoutKind(manifest map[string]any) map[string]any {
	rest := maps.Clone(manifest)
	delete(rest, "kind")
	delete(rest, "apiVersion")
	return rest
}

// holds tells whether everything in wanted is in found, beside whatever defaults and others added.
func holds(found, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		found, is := found.(map[string]any)
		for key, value := range wanted {
			if !is || !holds(found[key], value) {
				return false
			}
		}
		return true
	case []any:
		found, is := found.([]any)
		if !is || len(found) != len(wanted) {
			return false
		}
		for index, value := range wanted {
			if !holds(found[index], value) {
				return false
			}
		}
		return true
	}
	return found == wanted
}

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const component = "app.kubernetes.io/component"

// writeStatus patches the status if the Deployments say something new.
func (r *Reconciler) writeStatus(
	ctx context.Context, resource *unstructured.Unstructured, deployments []*appsv1.Deployment,
) error {
	before := resource.DeepCopy()
	status, err := statusOf(resource, deployments)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedMap(resource.Object, status, "status"); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before.Object["status"], resource.Object["status"]) {
		return nil
	}
	return r.Status().Patch(ctx, resource, client.MergeFrom(before))
}

func statusOf(
	resource *unstructured.Unstructured, deployments []*appsv1.Deployment,
) (map[string]any, error) {
	conditions, err := conditionsOf(resource)
	if err != nil {
		return nil, err
	}
	tiers := make([]any, 0, len(deployments))
	ready := 0
	for _, each := range deployments {
		if complete(each) {
			ready++
		}
		tiers = append(tiers, map[string]any{
			"name":    each.Labels[component],
			"pods":    fmt.Sprintf("%d/%d", each.Status.ReadyReplicas, *each.Spec.Replicas),
			"desired": int64(*each.Spec.Replicas),
			"ready":   int64(each.Status.ReadyReplicas),
			"updated": int64(each.Status.UpdatedReplicas),
		})
	}
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Complete",
		Message: "every tier is complete", ObservedGeneration: resource.GetGeneration(),
	}
	if ready < len(deployments) {
		condition.Status, condition.Reason = metav1.ConditionFalse, "Progressing"
		condition.Message = fmt.Sprintf("%d of %d tiers are complete", ready, len(deployments))
	}
	meta.SetStatusCondition(&conditions, condition)
	written, err := asObjects(conditions)
	return map[string]any{
		"observedGeneration": resource.GetGeneration(), "tiers": tiers, "conditions": written,
	}, err
}

func complete(deployment *appsv1.Deployment) bool {
	status, wanted := deployment.Status, *deployment.Spec.Replicas
	return status.ObservedGeneration >= deployment.Generation &&
		status.UpdatedReplicas == wanted && status.Replicas == wanted && status.ReadyReplicas == wanted
}

func conditionsOf(resource *unstructured.Unstructured) ([]metav1.Condition, error) {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	found, there, err := unstructured.NestedMap(resource.Object, "status")
	if err != nil || !there {
		return nil, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(found, &status)
	return status.Conditions, err
}

func asObjects(conditions []metav1.Condition) ([]any, error) {
	objects := make([]any, 0, len(conditions))
	for _, each := range conditions {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&each)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

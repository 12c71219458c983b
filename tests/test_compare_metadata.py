"""What a build shares with the public metadata: a copy of itself, renamed, shifted, with gaps; nothing at all."""

from __future__ import annotations

from dataclasses import replace

from data_gen.compare_metadata import compare, match_images
from data_gen.scene_builder import JudgedImage
from data_gen.scene_records import DroppedObject, DroppedObjects, SceneImage, SceneObject

CAR = SceneObject("white car", (100, 100, 200, 200), (150, 150), (-2.0, 1.0, 10.0), 10.0, 10.25, "North")
BUS = SceneObject("red bus", (500, 100, 700, 300), (600, 200), (4.0, 1.0, 20.0), 20.0, 20.42, "East")
VAN = DroppedObject("vehicle.truck", (10, 10, 20, 20), (-9.0, 1.0, 30.0), "too_small")


def image(name: str, *kept: SceneObject, dropped: tuple[DroppedObject, ...] = ()) -> JudgedImage:
    return JudgedImage(SceneImage(name, kept), DroppedObjects(name, dropped))


def public(name: str, *objects: SceneObject) -> SceneImage:
    return SceneImage(name, objects)


OURS = [image("samples/CAM_FRONT/a.jpg", CAR, BUS, dropped=(VAN,)), image("samples/CAM_BACK/b.jpg", dropped=(VAN,))]


def test_the_same_scenes_are_wholly_shared() -> None:
    found = compare(OURS, [public("a.webp", CAR, BUS)])
    assert found["images_matched_by"] == "file name"
    assert found["images"] == {
        "public": 1, "ours": 1, "shared": 1, "only_public": 0, "only_ours": 0, "public_without_match": 0
    }  # fmt: skip
    assert found["objects"] == {"public": 2, "ours": 2, "shared": 2, "only_public": 0, "only_ours": 0}
    assert found["only_public_because"] == {}
    shared = found["shared_objects"]
    assert (shared["same_description"], shared["same_heading"]) == (2, 2)
    assert shared["box_iou"]["min"] == 1.0 and shared["position_m"]["max"] == 0.0


def test_renamed_images_are_matched_by_the_positions_of_their_objects() -> None:
    how, partner_of = match_images(
        OURS, [public("00000.webp", BUS), public("00001.webp", replace(CAR, xyz_m=(0, 0, 99)))]
    )
    assert (how, partner_of) == ("positions of objects", {0: 0})
    a_centimetre_on = replace(BUS, xyz_m=(4.01, 1.0, 20.0))
    assert match_images(OURS, [public("x.webp", a_centimetre_on)])[1] == {0: 0}
    a_metre_on = replace(BUS, xyz_m=(5.0, 1.0, 20.0))
    assert match_images(OURS, [public("x.webp", a_metre_on)])[1] == {}


def test_what_is_public_and_not_ours_has_a_reason() -> None:
    as_public = replace(CAR, description="grey van", xyz_m=VAN.xyz_m)
    nowhere = replace(CAR, description="blue car", xyz_m=(20.0, 1.0, 50.0))
    found = compare(OURS, [public("a.webp", CAR, as_public, nowhere), public("unknown.webp", CAR)])
    assert found["objects"]["shared"] == 1 and found["objects"]["only_ours"] == 1
    assert found["only_public_because"] == {"too_small": 1, "no_object_there": 2}
    assert found["images"]["public_without_match"] == 1


def test_an_image_of_which_nothing_was_kept_is_not_shared() -> None:
    found = compare(OURS, [public("b.webp", replace(CAR, xyz_m=VAN.xyz_m))])
    assert found["images"]["shared"] == 0 and found["images"]["only_public"] == 1
    assert found["only_public_because"] == {"too_small": 1}


def test_differences_are_measured() -> None:
    moved = replace(
        CAR,
        description="White Car",
        heading="South",
        box_xyxy_px=(100, 100, 200, 150),
        pixel_xy=(153, 154),
        depth_m=10.4,
    )
    shared = compare(OURS, [public("a.webp", moved)])["shared_objects"]
    assert (shared["same_description"], shared["same_heading"]) == (1, 0)
    assert shared["box_iou"]["median"] == 0.5
    assert shared["pixel_px"]["max"] == 5.0 and shared["depth_m"]["max"] == 0.4


def test_every_object_of_ours_is_shared_once() -> None:
    found = compare(OURS, [public("a.webp", CAR, replace(CAR, xyz_m=(-2.1, 1.0, 10.0)))])
    assert found["objects"]["shared"] == 1 and found["only_public_because"] == {"no_object_there": 1}
